"""A station's folder: who has it, and the partitions in it.

<folder>/lock                                  held while a station has the folder
<folder>/partition                             the id of this station's partitions, for ever
<folder>/channels/<channel>/<partition>/...    histories
<folder>/consumers/<channel>/...               how far durable consumers have come
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from heliograph.errors import FileLocked, FolderInUse
from heliograph.journal.names import escaped
from heliograph.journal.recovery import make_folder
from heliograph.journal.store import JournalStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.store import OnDurable
    from heliograph.event import Event
    from heliograph.journal.partition import Limits
    from heliograph.ports import Ports

CHANNELS: Final = "channels"
CONSUMERS: Final = "consumers"
PARTITION: Final = "partition"


class Keeping:
    """Takes the folder of the ports' disk; FolderInUse when another station has it."""

    def __init__(self, ports: Ports, limits: Limits | None = None) -> None:
        assert ports.disk is not None
        self._ports = ports
        self._limits = limits
        self._disk = ports.disk
        try:
            self._lock = self._disk.lock("lock", note="as a station")
        except FileLocked as locked:
            raise FolderInUse(str(getattr(self._disk, "folder", "data")), locked.holder) from locked
        try:
            self.partition = self._own_partition()
            make_folder(self._disk, CHANNELS)
            make_folder(self._disk, CONSUMERS)
        except BaseException:
            self._lock.release()
            raise

    def open_store(
        self,
        channel: str,
        types: Callable[[], tuple[type[Event], ...]],
        on_durable: OnDurable,
    ) -> JournalStore:
        return JournalStore(
            self._ports,
            channel,
            self.partition,
            folder=CHANNELS,
            cursor_folder=CONSUMERS,
            types=types,
            on_durable=on_durable,
            limits=self._limits,
        )

    def has(self, channel: str) -> bool:
        """Whether this folder keeps a history of that channel."""
        return self._disk.exists(f"{CHANNELS}/{escaped(channel)}/{self.partition}")

    def close(self) -> None:
        self._lock.release()

    def _own_partition(self) -> str:
        if self._disk.exists(PARTITION):
            return self._disk.read(PARTITION).decode()
        name = f"{self._ports.random.id64():016x}"
        with self._disk.create(f"{PARTITION}.tmp-{name}") as file:
            file.append(name.encode())
            file.sync()
        self._disk.rename(f"{PARTITION}.tmp-{name}", PARTITION)
        self._disk.sync_folder()
        return name
