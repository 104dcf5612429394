"""The forwarder: takes events into a channel that were pushed in another domain, as they were pushed there.

An event keeps its supplier, epoch and sequence, its source time, priority, correlation id and headers, and
what is left of its lifespan. It goes out from here to all stations of this domain, as if it had been pushed
here. Gateways between domains push by it (`heliograph.federation`).

Each event is taken in once, however many gateways bring it: `FirstArrivals` knows those that were here
before, in every station that receives, and the journal those that it has kept.

What bars a supplier bars it: it takes nothing in while the channel is suspended, and where a channel is for
members only a member has joined under the name of the gateway. An event that was refused is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import msgspec

from heliograph.channel.batch import OutgoingBatch
from heliograph.channel.publish.remote_supplier import RemoteSupplier
from heliograph.channel.routing.forwarding import HERE
from heliograph.errors import NotPossible, Suspended, WrongEventType
from heliograph.model.event import Event, info_of
from heliograph.runtime.timeouts import check_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from heliograph.channel.channel import Channel
    from heliograph.channel.history.store import HistoryStore, StoreReceipt
    from heliograph.channel.publish.first_arrivals import FirstArrivals
    from heliograph.model.event import Header
    from heliograph.model.event_id_set import Verdict

T = TypeVar("T", bound=Event)

MOST_HOPS: Final = 254
"""Links and gateways that an event can cross, whatever gateways allow: more cannot be said on a link."""


class Forwarded(NamedTuple):
    """What became of an event that was given to a forwarder."""

    verdict: Verdict
    """Only "new" was taken in. Where a journal keeps the channel it is the journal that finds repeats."""
    kept: StoreReceipt | None = None
    """The promise of the journal; None: there is none."""


class Forwarder(Generic[T]):
    """See the module. Obtained from `channel.forwarder()`.

    Args:
        channel: where to.
        name: of the gateway.
        store: of the channel, if that is persistent.
        first: of the channel.
        add: puts a source among the suppliers of the channel.
    """

    def __init__(
        self,
        channel: Channel[T],
        name: str,
        store: HistoryStore | None,
        first: FirstArrivals,
        add: Callable[[RemoteSupplier], object],
    ) -> None:
        self._channel = channel
        self._name = name
        self._store = store
        self._first = first
        self._way: RemoteSupplier | None = None
        if store is None:
            self._way = RemoteSupplier(channel, name)
            self._way.origin = HERE
            self._way.names_itself = False
            add(self._way)

    def why_barred(self) -> Exception | None:
        """Why nothing is taken in now: the channel is suspended, or for members only; None: it is."""
        suspended = self._channel.suspended
        if suspended is not None:
            return suspended()
        admission = self._channel.admission
        return None if admission is None else admission.why_not_supplier(self._name)

    def push(self, event: T, header: Header, deadline_ns: int = 0, timeout: float | None = None) -> Forwarded:
        """Take an event in as the header says it was pushed; waits for space in the queues of receivers.

        Args:
            event: of one of the channel's types.
            header: of the event where it was pushed.
            deadline_ns: when its lifespan ends, on the monotonic clock; 0: it does not.
            timeout: seconds to wait for the keeper of a persistent channel.
        """
        check_timeout(self._channel.name, timeout)
        if event.__class__ not in self._channel.types:
            name = info_of(event.__class__).name
            raise WrongEventType(self._channel.name, name, self._channel.type_names)
        barred = self.why_barred()
        if barred is not None:
            raise barred
        item = (event, self._header(event, header, deadline_ns), deadline_ns)
        if self._store is not None:
            self._store.wait_ready(timeout)
            push_id = str(header.id)
            return Forwarded("new", self._store.append_once(OutgoingBatch.of((item,)), push_id, "synced"))
        assert self._way is not None
        verdict = self._first.judge(item[1])
        if verdict == "new":
            try:
                self._way.take_in((item,), wait=True)
            except Suspended:
                self._first.forget(item[1])
                raise
        return Forwarded(verdict)

    def close(self) -> None:
        """Nothing more comes by it; what came is still delivered."""
        if self._way is not None:
            self._way.close()

    def _header(self, event: T, header: Header, deadline_ns: int) -> Header:
        if header.hops >= MOST_HOPS:
            raise NotPossible(self._channel.name, f"event {header.id} has crossed {header.hops} links")
        left = None
        if deadline_ns:
            left = max(0, deadline_ns - self._channel.ports.clock.monotonic_ns())
        return msgspec.structs.replace(
            header,
            channel=self._channel.name,
            format_id=info_of(event.__class__).format.id,
            station_seq=self._channel.next_station_seq(),
            append_ts=None,
            partition=None,
            offset=None,
            lifetime_ns=left,
            hops=header.hops + 1,
            redelivered=False,
        )
