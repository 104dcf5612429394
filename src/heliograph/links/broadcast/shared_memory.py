"""Where a station has its rings in shared memory, or why it has none and its events go by socket."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import RingError, UnsafeRuntimeFolder

if TYPE_CHECKING:
    from heliograph.links import Carrier

log = logging.getLogger(__name__)

NOT_ASKED_FOR: Final = "this station does without shared memory: it was opened with transport='socket'"
OTHER_TRANSPORT: Final = "this station has a transport of its own, and no shared memory with its peers"


class Rings(msgspec.Struct, frozen=True):
    """Where a station has its rings, and how it waits for what comes in those of others."""

    folder: Any = None
    """A `RingFolder`; None where there can be none."""
    reason: str = OTHER_TRANSPORT
    """Why there is none, in words; empty where there is one."""
    wait: Any = "block"
    """A `WaitMode`."""

    def remove_dead(self) -> None:
        """Remove the rings that stations of this domain have left whose processes have ended."""
        if self.folder is not None:
            self.folder.rings()

    def leave(self) -> None:
        """This station has no ring any more."""
        if self.folder is not None:
            self.folder.leave()


def rings_of(domain: str, carrier: Carrier) -> Rings:
    """Those of a station of a domain; none, with the reason, where the host has no shared memory for them."""
    if carrier == "socket":
        return Rings(None, NOT_ASKED_FOR)
    from heliograph.ring import RingFolder  # noqa: PLC0415 - stations without rings need not load them

    try:
        folder = RingFolder(domain)
        folder.remove_dead()
        return Rings(folder, "", "spin" if carrier == "spinning-ring" else "block")
    except (RingError, UnsafeRuntimeFolder, OSError) as error:
        log.warning("events of this station go by socket: %s", error)
        return Rings(None, f"this station cannot use shared memory: {error}")
