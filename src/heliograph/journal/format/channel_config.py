"""The channel's configuration in its folder: quality of service, and the event types it may carry.

<folder>/channels/<channel>/charter            JSON

A station that opens the channel without saying how has it as it was. The formats are those of the classes
with which it was last opened, by a program or for another station. Before the first event has come,
`helio station` opens the channel with them, and Spark takes them for the channel's fields.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.codec.dynamic.classes import is_made
from heliograph.errors import BadJournalFile, FormatError, InvalidQoS, NoSuchFile
from heliograph.journal.folders import made_folder
from heliograph.journal.names import CHANNELS, HEADS, SEALED, TEMPORARY, escaped
from heliograph.model.event import info_of
from heliograph.model.formats import FormatRegistry
from heliograph.qos.policies import QoS, policies_of, qos_of

if TYPE_CHECKING:
    from heliograph.model.event import Event
    from heliograph.model.formats import Format
    from heliograph.runtime.ports import Disk

log = logging.getLogger(__name__)

CHARTER: Final = "charter"
END: Final = b"\n"
"""Stands behind the record and nowhere in it: what has it was written to its end."""


class ChannelConfig(msgspec.Struct):
    """See the module."""

    policies: dict[str, Any] = msgspec.field(default_factory=lambda: {"durability": "persistent"})
    """Those that are not the default."""
    formats: list[tuple[bytes, bytes]] = []
    """Id and description of each."""
    suspended: str | None = None
    """The owner that has suspended the channel: nothing is taken in until that is undone."""
    members_only: bool = False
    """Whether only members of the channel push: batches from outside are asked for whose they are."""

    def qos(self) -> QoS:
        return qos_of(self.policies)

    def known_formats(self) -> list[Format]:
        registry = FormatRegistry()
        return [registry.learn(*row) for row in self.formats]


_decode: Final = msgspec.json.Decoder(ChannelConfig).decode


def read_charter(disk: Disk, channel: str) -> ChannelConfig:
    """What is remembered of a channel; the defaults when that is nothing."""
    return _read(disk, channel) or ChannelConfig()


def _read(disk: Disk, channel: str) -> ChannelConfig | None:
    name = f"{CHANNELS}/{escaped(channel)}/{CHARTER}"
    try:
        data = disk.read(name)
    except NoSuchFile:
        return None
    try:
        charter = _decode(data.decode())  # names that are not known are passed over, but not their damage
        charter.qos()
        charter.known_formats()
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidQoS, FormatError) as error:
        if _is_cut(data) and not _has_events(disk, channel):
            # It is synced before the first event: until then a power loss may leave a part of it.
            log.warning("%s was cut by a power loss, and is passed over: the channel has no events yet", name)
            return ChannelConfig()
        reason = f"{error}; remove it and say qos= when the channel is opened"
        raise BadJournalFile(name, reason) from error
    return charter


def _is_cut(data: bytes) -> bool:
    """Whether a power loss during its writing can have left this: its end, or blocks of it, are missing."""
    if data.endswith(END) and b"\0" not in data:
        return False
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def _has_events(disk: Disk, channel: str) -> bool:
    folder = f"{CHANNELS}/{escaped(channel)}"
    partitions = [f"{folder}/{name}" for name in disk.list(folder) if name.endswith("/")]
    inner = [f"{partition}{name}" for partition in partitions for name in (HEADS, SEALED)]
    return any(disk.exists(name) and disk.list(name) for name in inner)


def sync_name(disk: Disk, channel: str) -> None:
    """Sync where a charter is: it may have been put there by a call that failed after that."""
    disk.sync_folder(f"{CHANNELS}/{escaped(channel)}")
    disk.sync_folder(CHANNELS)


def keep_charter(
    disk: Disk,
    channel: str,
    qos: QoS,
    types: tuple[type[Event], ...],
    *,
    sync: bool = True,
    anew: bool = False,
) -> ChannelConfig:
    """Remember how a channel is and what it carries, if that is news, or in any case (`anew`).

    Without `sync` it survives a power loss when it was kept anew, which comes before the first event. It is
    written again for that: a second sync of a file whose first one failed says nothing about its content.
    A charter that is there is replaced by one that is synced: the events of other partitions depend on it.

    Of a class that was made of a format, what is known under its name stays: a tool that opens a channel for
    its old events does not replace the program's own class.
    """
    found = _read(disk, channel)
    known = found or ChannelConfig()
    declared = {fmt.name: fmt for fmt in known.known_formats()}
    infos = ((info_of(cls), is_made(cls)) for cls in types)
    formats = [declared.get(info.name, info.format) if made else info.format for info, made in infos]
    charter = ChannelConfig(
        policies_of(qos), [(fmt.id, fmt.description) for fmt in formats], known.suspended, known.members_only
    )
    if anew or charter != known:
        _write(disk, channel, charter, sync=sync or found is not None)
    return charter


def keep_members_only(disk: Disk, channel: str, *, members_only: bool) -> None:
    """Remember whether only members push, for batches that come while no station has the channel open."""
    found = read_charter(disk, channel)
    if found.members_only != members_only:
        found.members_only = members_only
        _write(disk, channel, found, sync=True)


def keep_suspension(disk: Disk, channel: str, owner: str | None, *, anew: bool = False) -> None:
    """Remember which owner has suspended a channel, for the adoption of batches while no station has it open.

    With `anew` it is written though it is there: an earlier call may have failed before it was synced.
    """
    known = read_charter(disk, channel)
    if anew or known.suspended != owner:
        _write(disk, channel, msgspec.structs.replace(known, suspended=owner), sync=True)


def _write(disk: Disk, channel: str, charter: ChannelConfig, *, sync: bool) -> None:
    folder = f"{CHANNELS}/{escaped(channel)}"
    was_there = not made_folder(disk, folder)
    if sync:
        disk.sync_folder(CHANNELS)
    temporary = f"{folder}/{CHARTER}{TEMPORARY}"
    if was_there:
        with suppress(NoSuchFile):
            disk.remove(temporary)
    with disk.create(temporary) as file:
        file.append(msgspec.json.encode(charter) + END)
        if sync:
            file.sync()
    disk.rename(temporary, f"{folder}/{CHARTER}")
    if sync:
        disk.sync_folder(folder)
