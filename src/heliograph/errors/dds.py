"""Return codes of DDS that are no success, as errors of the DCPS face."""

from __future__ import annotations

from heliograph.errors.channel import ChannelError


class DcpsError(ChannelError):
    """A call that an entity of the DCPS face cannot follow; `name` is the entity."""

    reason: str
    """Why not, and what to do instead."""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class PreconditionNotMet(DcpsError):
    """Something has to happen first: an entity that contains others cannot be deleted."""


class ImmutablePolicy(DcpsError):
    """A policy that cannot change while the entity is enabled."""


class InconsistentPolicy(DcpsError):
    """Policies of one entity that contradict each other."""


class IncompatibleQos(DcpsError):
    """A writer and a reader of one topic do not match; told to `on_error`, at both ends."""

    other: str
    """The handle of the other one."""
    policies: tuple[int, ...]
    """QosPolicyIds of the policies that keep them apart."""

    def __str__(self) -> str:
        return f"{self.name} does not match {self.other}:\n{self.reason}"


class NotEnabled(DcpsError):
    """The entity was not enabled yet."""


class AlreadyDeleted(DcpsError):
    """The entity was deleted."""


class BadParameter(DcpsError):
    """An argument that the call does not take."""


class Unsupported(DcpsError):
    """A value that the standard allows and this service does not honour."""


class WriteTimeout(DcpsError):
    """A reliable reader had no room for `max_blocking` seconds: nobody got the sample."""

    retriable = True


class OutOfResources(DcpsError):
    """A limit of the writer's own resource_limits is reached."""
