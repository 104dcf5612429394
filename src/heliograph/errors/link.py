"""Two stations that cannot talk to each other."""

from __future__ import annotations

from heliograph.errors.base import HeliographError


class LinkError(HeliographError):
    """Two stations cannot talk to each other."""

    peer: str
    """The other station, or where it was looked for."""
    reason: str
    """What is wrong."""

    def __str__(self) -> str:
        return f"{self.peer}: {self.reason}"


class UnsafeRuntimeFolder(LinkError):
    """The folder where this user's stations meet belongs to, or can be entered by, another user."""


class LinkRefused(LinkError):
    """The other station is not one that this one may talk to."""


class NotVouched(LinkRefused):
    """A caller claims to be a station, and the kernel or the meeting folder says that it is not that one."""

    retriable = True


class LinkLost(LinkError):
    """The connection to another station ended."""

    retriable = True


class BadFrame(LinkError):
    """Bytes came over a link that no station of this version sends."""


class LinkStalled(LinkError):
    """A task that links need cannot go on for now: no descriptor, thread or memory is left."""

    retriable = True


class QueryFailed(LinkError):
    """Another station could not answer a question, or not in time."""

    retriable = True
