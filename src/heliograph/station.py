"""A station: the event service inside one process.

    with hg.Station() as station:
        tracks = station.channel("air.tracks", Track)

It puts the rooms together: it owns the ports, the workers that call callbacks, and the channels. Leaving the
`with` block delivers what waits, up to a limit, and closes everything.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections import Counter
from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Never, Self, TypeVar, Unpack, get_args, overload

from heliograph.channel.channel import Channel
from heliograph.channel.context import ChannelContext
from heliograph.channel.dispatch.asyncio_loop import AsyncioLoop
from heliograph.channel.dispatch.station_pools import CALLBACK_LIMIT, Pools
from heliograph.channel.names import ChannelWatch, NamePatternSubscription, check_channel, types_needed
from heliograph.configuration import check_station, load
from heliograph.delivery.ack_watch import Watching
from heliograph.delivery.coordinator import Coordinator
from heliograph.delivery.records import RESERVED, Recorder
from heliograph.derived.derivations import Derivations
from heliograph.errors import (
    ChannelExists,
    Closed,
    ForkedStation,
    HeliographError,
    NoSuchChannel,
    NotPossible,
)
from heliograph.errors.sentences import station_text
from heliograph.journal.limits import Limits
from heliograph.journal.published.publication import Store
from heliograph.journal.station_folder import Keeping
from heliograph.links import PEER_LIMIT, Carrier, Identity, check_joining, join
from heliograph.model.event import Event
from heliograph.monitoring import snapshot as seen
from heliograph.monitoring.station_events import STATION, StationEvents
from heliograph.qos.explanation import explain
from heliograph.qos.matching import differences
from heliograph.qos.policies import QoS
from heliograph.runtime.declared_options import rows_of
from heliograph.runtime.endpoints import REPAIR_BYTES, REPAIR_EVENTS, Network
from heliograph.runtime.error_reporting import ErrorReports, reporter, run_all
from heliograph.runtime.option_names import insist_on_known, names_options
from heliograph.runtime.ports import LocalDisk, Ports, seconds_until, system_ports
from heliograph.runtime.timeouts import check_timeout
from heliograph.runtime.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from heliograph.channel.ledger import ChannelStats
    from heliograph.channel.registry import Access
    from heliograph.configuration import Configuration
    from heliograph.delivery.trader import Trader
    from heliograph.links.contract import Transport
    from heliograph.links.interest.channel_discovery import ChannelDiscovery
    from heliograph.links.mesh.mesh import Mesh
    from heliograph.links.services.answerers import LinkedAnswerers
    from heliograph.links.services.managers import LinkedManagers
    from heliograph.links.services.operators import LinkedOperations
    from heliograph.links.services.parameters import LinkedParameters
    from heliograph.links.services.states import LinkedStates
    from heliograph.manager import Manager
    from heliograph.manager.domain import DomainManager
    from heliograph.model.event import Header
    from heliograph.monitoring.snapshot import StationSnapshot
    from heliograph.monitoring.why import Asker
    from heliograph.patterns.pattern import Pattern
    from heliograph.patterns.subscription import PatternSubscription
    from heliograph.runtime.error_reporting import OnError
    from heliograph.scheduling.admission import Schedule
    from heliograph.web.server import PageServer
    from heliograph.workers.supervisor import BandWorker, WorkerOptions

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Event)

CARRIER_LIMIT = 2.0
"""Seconds that opening a channel waits for stations that want its events to say how they take them."""
SWEEP_SECONDS = 0.5
"""Between two looks at which members were not heard of for their lease."""
DRAIN_LIMIT = 5.0
"""Seconds that closing waits for deliveries."""


def configuration_of(config: str | os.PathLike[str] | None) -> Configuration:
    """What the configuration file of a station says, checked; InvalidConfiguration names the line."""
    return load(config, get_args(Carrier), rows_of(Limits), rows_of(Store))


def _published_to(said: Any, in_file: Mapping[str, Any], *, keeps: bool) -> Store | None:
    """The store of published segments that a program or its file has asked for."""
    if said is not None and not isinstance(said, Store | str):
        raise TypeError(f"store= is hg.Store(...) or its URL, not {said!r:.60}")
    store = Store(**in_file) if in_file else said
    if store is not None and not keeps:
        raise NotPossible("store", "sealed segments are published from a folder: give folder=, too")
    return Store(store) if isinstance(store, str) else store


class Station:
    """See the module.

    Args:
        folder: where persistent channels keep their history; made if it is not there. One station at a time
            can have it.
        domain: joins this user's stations of that domain on this host: channels of one name are one.
        name: how others see this station in that domain; need not be unique.
        transport: what carries events between the stations of a domain: "ring", shared memory, where that
            works and the socket elsewhere, if none is given (`mesh.stats()` says which it is, and why);
            "spinning-ring", which is faster where all consumers are inline; "socket"; or what makes another
            transport, given this station's id.
        priority: of consumers that name none; without it events have their own.
        config: a TOML file that says what its channels have and how they dispatch; see
            `heliograph.configuration`. It takes the place of what the program says.
        journal: when the files of persistent channels are rotated, and how much of them is kept.
        store: where sealed files of persistent channels are published for readers that do not see the folder,
            such as a cluster of Spark: `hg.Store(...)`, or its URL; needs a folder.
        callback_limit: seconds after which a callback that does not return is reported and detached.
        peer_limit: seconds after which a station of the domain that is there and says nothing, because it is
            stopped, is suspected: it holds up nobody until it is heard again. At least 1; None: it is waited
            for.
        listen: where stations of other hosts can connect to this one, such as "tcp/127.0.0.1:7447", or a list
            of such; needs the extra `network`. No socket of the network is opened without this or `connect`.
        connect: where to meet stations of other hosts: their `listen`. Who is not there is waited for.
        identity: a folder that `helio keys add` has made, with the certificate and key of this station, for
            endpoints such as "tls/10.0.0.1:7447": both ends must show one of the domain's authority.
        insecure: lets both be other than loopback though nothing is encrypted, and whoever reaches this
            station can read and send everything.
        standby: waits up to so many seconds for a folder that another station has, and takes it over when
            that one has ended, however it ended; the time begins when it is opened.
        repair_events: events that each lane of a stream to other hosts keeps in memory for stations that did
            not get them; see `docs/guides/network.md`.
        repair_bytes: likewise their bytes. What reaches its bound first counts.
        page: serves a page that shows this station and its domain in a browser: True on a loopback address,
            a port of it, or "host:port"; `station.page` is its link. Needs `pip install 'heliograph[page]'`.
        on_error: called with (receiver's name, header, exception) when a callback raises, or with None for
            the header when a receiver missed a part of the history, or a band worker died; else it is
            logged, and so is what this raises.
        ports: clock, tasks and chance; tests pass simulated ones.
    """

    @names_options
    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        domain: str | None = None,
        name: str = "",
        transport: Callable[[int], Transport] | Carrier | None = None,
        priority: int | None = None,
        config: str | os.PathLike[str] | None = None,
        journal: Limits | None = None,
        store: Store | str | None = None,
        callback_limit: float = CALLBACK_LIMIT,
        peer_limit: float | None = PEER_LIMIT,
        listen: Sequence[str] = (),
        connect: Sequence[str] = (),
        identity: str | os.PathLike[str] | None = None,
        insecure: bool = False,
        standby: float = 0.0,
        repair_events: int = REPAIR_EVENTS,
        repair_bytes: int = REPAIR_BYTES,
        page: bool | int | str = False,
        on_error: Callable[[str, Header | None, BaseException], None] | None = None,
        ports: Ports | None = None,
    ) -> None:
        listen, connect = ([one] if isinstance(one, str) else one for one in (listen, connect))
        if journal is not None and not isinstance(journal, Limits):
            raise TypeError(f"journal= is hg.Limits(...), not {journal!r:.60}")
        check_station(
            {
                "folder": folder,
                "name": name,
                "priority": priority,
                "callback_limit": callback_limit,
                "page": page,
                "on_error": on_error,
                "listen": listen,
                "connect": connect,
                "identity": identity,
                "insecure": insecure,
                "standby": standby,
                "repair_events": repair_events,
                "repair_bytes": repair_bytes,
            }
        )
        check_joining(domain, transport, peer_limit)
        self._configuration = configuration_of(config)
        transport = self._configuration.transport or transport
        peer_limit = self._configuration.peer_limit or peer_limit
        network = self._configuration.network(
            Network(
                listen,
                connect,
                insecure,
                None if identity is None else os.fspath(identity),
                repair_events,
                repair_bytes,
            )
        )
        check_joining(domain, transport, peer_limit, network)
        keeps = folder is not None or ports is not None
        published = _published_to(store, self._configuration.store, keeps=keeps)
        self._domain, self._transport, self._name = domain, transport, name
        self._own_ports(folder, ports, on_error)
        station_seq = count(1).__next__
        self._keeping = self._open_folder(journal, station_seq, published, standby)
        self._hold_nothing_yet()
        self._make_threads(callback_limit)
        self.mesh: Mesh | None = None
        if domain is not None:
            self.mesh = self._joined(
                Identity(self.id, name, domain), transport, peer_limit, on_error, network
            )
        self._serve_channels(station_seq, on_error, self._configuration.priority or priority)
        self._be_seen(folder)
        self._managers = self._linked_managers()
        _STATIONS.add(self)
        if ports is None:
            _OPEN.add(self)
        if network:
            _close_before_threads_end()
        if page is not False:
            try:
                self.serve_page(page)
            except BaseException:
                self.close(0.0)
                raise

    # The steps of opening, in their order

    def _own_ports(
        self,
        folder: str | os.PathLike[str] | None,
        ports: Ports | None,
        on_error: Callable[[str, Header | None, BaseException], None] | None,
    ) -> None:
        """Clock, tasks, chance and disk; and who this station is."""
        self.ports = ports or system_ports(folder)
        if on_error is not None:  # else the log has it
            reports = ErrorReports(self.ports.tasks, reporter(on_error))
            self.ports.tasks.stalls.tell = partial(reports.post, "threads of this station", None)
        self._disk = self.ports.disk if ports is None else None
        """What was opened here, and is closed with the station."""
        self.id = self.ports.random.id64()

    def _open_folder(
        self, journal: Limits | None, station_seq: Callable[[], int], published: Store | None, standby: float
    ) -> Keeping | None:
        if self.ports.disk is None:
            return None
        keeping = Keeping(
            self.ports,
            journal,
            station_seq,
            owner=station_text(self.id, self._name),
            limits_said=self._configuration.journal_of,
            store=published,
            standby=standby,
        )
        keeping.admission_of = lambda name: self._own_manager().admission(name)
        return keeping

    def _hold_nothing_yet(self) -> None:
        """What is opened later, when it is asked for."""
        self._lock = self.ports.tasks.lock("station")
        self._channels: dict[str, Channel[Any]] = {}
        self._managing = self.ports.tasks.lock("opening of the manager")
        self._manager: Manager | None = None
        self._domain_manager: DomainManager | None = None
        self._trader: Trader | None = None
        self._patterns: list[NamePatternSubscription | ChannelWatch] = []
        self._discovery: ChannelDiscovery | None = None
        # What is open keeps itself alive through its streams and timers.
        self._togethers: weakref.WeakSet[PatternSubscription] = weakref.WeakSet()
        self._schedule: Schedule | None = None
        self._workers: list[BandWorker] = []
        self._asker: Asker | None = None
        self.page: str | None = None
        """The link of its page, with the token that opens it."""
        self._page_server: PageServer | None = None
        self._closed = False
        self._forked = False

    def _make_threads(self, callback_limit: float) -> None:
        """Dispatch pools, timers, and a loop for callbacks that are `async def`."""
        self._pools = Pools(
            self.ports.clock,
            self.ports.tasks,
            callback_limit=self._configuration.callback_limit or callback_limit,
            dispatching=self._configuration.modules.dispatching,
        )
        self.timers = Timers(self.ports.clock, self.ports.tasks, limit=self._configuration.timers)
        self._loop = AsyncioLoop(self.ports.tasks)

    def _serve_channels(
        self,
        station_seq: Callable[[], int],
        on_error: Callable[[str, Header | None, BaseException], None] | None,
        priority: int | None,
    ) -> None:
        """What its channels share: records of deliveries, events of the station, derived channels."""
        self._recorder = Recorder(
            self.ports,
            f"{self.id:016x}",
            self._open_beside,
            self.channels,
            self.mesh,
            durable=self._keeping is not None,
        )
        self._events = StationEvents(self.id, self._name, self._channels.get)
        self._derivations = Derivations(
            lambda: self._services,
            self._open_derived,
            self._channels.get,
            # Without the station's lock, which whoever opens a channel holds while it waits for others.
            lambda: tuple(self._channels.values()),
            self.mesh,
            self.ports.tasks,
        )
        filtering = self._configuration.modules.filtering
        self._services = self._shared(station_seq, on_error, priority=priority, filtering=filtering)

    def _be_seen(self, folder: str | os.PathLike[str] | None) -> None:
        """Snapshots of it, here and for the stations of its domain."""
        self._seen = seen.StationParts(
            self.id,
            self._name,
            self._domain,
            None if folder is None else os.path.abspath(folder),  # noqa: PTH100 - a name, nothing is looked up
            self.ports.clock.monotonic_ns(),
            self.ports,
            self.mesh,
            self.channels,
            self.busy,
            self.stalls,
            self._recorder.latencies,
        )
        if self.mesh is not None:
            seen.answer_others(self._seen)
            self.mesh.answer(seen.WHY, lambda *asked: self.asker.asked(*asked))  # noqa: PLW0108 - made when asked

    # The face

    def serve_page(self, address: bool | int | str = True) -> str:
        """Serve the page from now on, as `hg.Station(page=...)` does; returns its link."""
        self._check_usable()
        from heliograph.web.server import PageServer  # noqa: PLC0415 - few stations have a page

        if self._page_server is not None:
            raise NotPossible("page", f"is served already: {self.page}")
        self._page_server = PageServer(self, address)
        self.page = self._page_server.link
        return self.page

    @names_options
    def channel(
        self,
        name: str,
        *types: type[T],
        qos: QoS | None = None,
        mode: Literal["create", "open"] | None = None,
        access: Access | None = None,
    ) -> Channel[T]:
        """The channel of that name: opened, or created; `mode` insists on one of the two.

        Args:
            name: parts joined by dots, such as "air.tracks".
            *types: event classes that it carries; needed to create it, added when opening it. For one that
                stations of the domain have open, classes are made of its formats if none is given.
            qos: of a new channel; opening one with another quality of service is refused.
            mode: "create" or "open".
            access: what this station does in it: "consume", "supply" or, when nothing is said, "both".
        """
        self._check_usable()
        check_channel(name, types, qos, mode, access)
        if self._discovery is None:
            return self._opened(name, types, qos, mode, access)
        as_it_is = not types and qos is None and mode is None and access is None
        with self._discovery.given_up(name, as_it_is=as_it_is):
            return self._opened(name, types, qos, mode, access)

    def _opened(
        self,
        name: str,
        types: tuple[type[Any], ...],
        qos: QoS | None,
        mode: str | None,
        access: Access | None,
    ) -> Channel[Any]:
        recorded = self._recorded(name, qos)
        types = types or self._learned_types(name)
        with self._lock:
            channel = self._channels.get(name)
            is_new = channel is None
            if channel is None:
                channel = self._create(name, types, qos or recorded, mode, access or "both")
            elif channel.closed:
                raise NotPossible(name, "is being closed: open it again when close() has returned")
            elif mode == "create":
                raise ChannelExists(name)
            elif qos is not None and (other := differences(channel.qos, self._configuration.qos(name, qos))):
                had = ", ".join(f"{row.policy}={row.offered!r}, not {row.requested!r}" for row in other)
                found = explain(channel.qos, self._configuration.qos(name, qos))
                more = "" if found else f"\n{found}"
                raise NotPossible(name, f"is open with {had}; leave out qos= to use that{more}")
            elif access is not None and access != channel.access:
                raise NotPossible(
                    name, f"is open with access={channel.access!r}; leave out access= to use that"
                )
            else:
                new = tuple(cls for cls in types if cls not in channel.types)
                if new and self._keeping is not None:
                    self._keeping.check_types(name, new)
                channel.add_types(types)
                if new and self._keeping is not None and channel.qos.journalled:
                    self._keeping.declare(name, channel.qos, channel.types)
            channel.discovered = False
        self._announce(channel, is_new=is_new)
        return channel

    def _announce(self, channel: Channel[Any], *, is_new: bool = True) -> None:
        """Tell others of a channel that was opened, and patterns of names that want it."""
        with self._lock:
            patterns = list(self._patterns)
        self._channel_changed(channel)
        if self.mesh is not None:
            self.mesh.wait_carried(channel, CARRIER_LIMIT)
        self._recorder.start()
        if is_new:
            self._events.tell("opened", channel.name, text=", ".join(channel.type_names))
            if self.mesh is not None and channel.derives is None:
                self._derivations.look_soon()
        for pattern in patterns:
            pattern.meet(channel)

    def _open_discovered(self, name: str, types: tuple[type[Any], ...], qos: QoS | None) -> Channel[Any]:
        """Open a channel that other stations have, for the patterns that fit its name."""
        recorded = self._recorded(name, qos)
        with self._lock:
            self._check_usable()
            channel = self._create(name, types, qos or recorded, None, "both")
            channel.discovered = True
        self._announce(channel)
        return channel

    def _is_wanted(self, name: str) -> bool:
        with self._lock:
            return any(pattern.wants(name) for pattern in self._patterns)

    def _discover(self) -> None:
        """Look for channels of other stations from now on, and have those open that are there."""
        from heliograph.links.history.directory import MEET_LIMIT  # noqa: PLC0415 - as above
        from heliograph.links.interest.channel_discovery import ChannelDiscovery  # noqa: PLC0415 - few programs have patterns

        assert self.mesh is not None
        with self._lock:
            if self._discovery is None:
                self._discovery = ChannelDiscovery(
                    self.mesh,
                    self.ports.clock,
                    self.ports.tasks,
                    wants=self._is_wanted,
                    opened=self._channels.get,
                    open_channel=self._open_discovered,
                )
        self.mesh.meet_all(MEET_LIMIT)
        self._discovery.look()

    @overload
    def subscribe(
        self, pattern: str, callback: Callable[..., object], **options: Any
    ) -> NamePatternSubscription: ...
    @overload
    def subscribe(
        self,
        pattern: Pattern,
        callback: Callable[[Any], object],
        *,
        name: str | None = ...,
        priority: int | None = ...,
        replayable: bool = ...,
    ) -> PatternSubscription: ...
    def subscribe(self, pattern: Any, callback: Callable[..., object], **options: Any) -> Any:
        """Subscribe to every channel whose name fits, now and later; or to what several events mean together.

        Args:
            pattern: of names: `*` stands for one part of a name, `**` for any number: "air.*" fits
                "air.tracks", "**" fits all; channels that only other stations of the domain have, too. Or of
                events: `hg.all_of(...)`, `any_of`, `none_of`, `every`, `after`; a callback then gets a match
                that has the events by name.
            callback: as in `channel.subscribe`.
            **options: as in `channel.subscribe`; `name`, `priority` and `replayable` for a pattern of events.
        """
        self._check_usable()
        if not isinstance(pattern, str):
            return self._together(pattern, callback, **options)
        subscription = NamePatternSubscription(
            pattern, callback, options, reserved=(RESERVED, STATION), forget=self.forget_pattern
        )
        self._add_pattern(subscription)
        return subscription

    def each_channel(self, pattern: str, call: Callable[[Channel[Any]], object]) -> ChannelWatch:
        """Call a function with every channel whose name fits, now and later, also of other stations.

        Args:
            pattern: of names, as in `subscribe`; a name fits itself.
            call: must not wait, nor open or close channels: it is called where a channel is being opened.
        """
        self._check_usable()
        watch = ChannelWatch(pattern, call, reserved=(RESERVED, STATION), forget=self.forget_pattern)
        self._add_pattern(watch)
        return watch

    def _add_pattern(self, pattern: NamePatternSubscription | ChannelWatch) -> None:
        with self._lock:
            self._patterns.append(pattern)
            channels = list(self._channels.values())
        for channel in channels:
            pattern.meet(channel)
        if self.mesh is not None:
            self._discover()

    def __reduce__(self) -> Never:
        raise NotPossible(
            "pickle",
            "a station has threads, locks and sockets of this process; open one where it is needed: "
            "hg.Station(domain=...), for example inside of the function that the other process runs",
        )

    def _together(
        self, pattern: Pattern, callback: Callable[[Any], object], **options: Any
    ) -> PatternSubscription:
        if not self._configuration.modules.correlation:
            raise NotPossible("subscribe", "a pattern: this station's configuration has no correlation")
        from heliograph.patterns.subscription import look_for  # noqa: PLC0415 - few programs have patterns

        bounds, others = self._configuration.patterns, self.patterns()
        together = look_for(pattern, callback, self._services, bounds, others, **options)
        with self._lock:
            self._togethers.add(together)
        return together

    def matches(self, pattern: Pattern, *, name: str, **only: Any) -> Iterator[Any]:
        """The matches of a pattern that was subscribed to with `replayable=True`, found again from history.

        Args:
            pattern: the same as then.
            name: the name that it was subscribed under.
            **only: `key`: the matches of one key.
        """
        from heliograph.patterns.pattern import limited  # noqa: PLC0415 - likewise
        from heliograph.patterns.subscription import found_again  # noqa: PLC0415 - few programs have patterns

        self._check_usable()
        insist_on_known("matches", only, ("pattern", "name", "key"))
        bounds = self._configuration.patterns
        as_then = limited(pattern, keys=bounds.keys, depth=bounds.depth)
        return found_again(as_then, self._services, name, **only)

    @names_options
    def schedule(self, *, preemptive: bool = False, blocking: float = 0.0) -> Schedule:
        """The tasks of this station, which are admitted by their rates; there is one set of them.

        Args:
            preemptive: whether a higher priority interrupts a lower one: only where each has threads or
                processes that the operating system knows as such.
            blocking: seconds that anything of lower priority may hold up anything of higher, beside that: an
                interpreter lock's switch interval, a lock.
        """
        from heliograph.scheduling.admission import Schedule  # noqa: PLC0415 - few programs have tasks

        self._check_usable()
        clock, tasks = self.ports.clock, self.ports.tasks
        with self._lock:
            if self._schedule is None:
                self._schedule = Schedule(clock, tasks, preemptive=preemptive, blocking=blocking)
            schedule = self._schedule
        if (schedule.preemptive, schedule.blocking) != (preemptive, blocking):
            given = f"preemptive={schedule.preemptive}, blocking={schedule.blocking}"
            raise NotPossible("schedule", f"there is one already, with {given}")
        return schedule

    def patterns(self) -> tuple[PatternSubscription, ...]:
        """The patterns of events that are looked for."""
        with self._lock:
            return tuple(self._togethers)

    def band_worker(
        self, setup: str | Callable[[Station], object], **options: Unpack[WorkerOptions]
    ) -> BandWorker:
        """Consumers of a priority band in a process of their own; returns when they are there.

        Args:
            setup: a function that another process can import, or "module:function". It is called there with
                a station of this one's domain and carrier, and subscribes what it likes.
            **options: `priority` of its consumers that name none, required; `name`, `core`, `fifo`,
                `timeout`, `hang_after`, `on_hang`, `redeliver`: see
                `heliograph.workers.supervisor.WorkerOptions`.

        A worker that dies is started again, and reported to `on_error`; see `heliograph.workers.supervisor`.
        """
        from heliograph.workers.supervisor import open_worker  # noqa: PLC0415 - few programs have workers

        self._check_usable()
        worker = open_worker(setup, self.mesh, self._transport, self._services, options)
        worker.on_closed = self._forget_worker
        with self._lock:
            self._workers.append(worker)
        worker.wait_begun()
        return worker

    @property
    def manager(self) -> Manager:
        """Channels with owners and members, as its folder knows them; see `heliograph.manager`."""
        self._check_usable()
        if self._keeping is None:
            raise NotPossible(
                "manager",
                "who is in a channel is kept in a folder: hg.Station('data'); station.domain_manager asks "
                "the stations of the domain that have one",
            )
        return self._own_manager()

    @property
    def trader(self) -> Trader:
        """Services that stations of the domain offer; see `heliograph.delivery.trader`."""
        from heliograph.delivery.trader import TRADER, Offer, Trader  # noqa: PLC0415 - few stations trade

        self._check_usable()
        channel = self.channel(TRADER, Offer)
        with self._managing:
            if self._trader is None:
                own = f"{self.id:016x}"
                ids = count(1)
                self._trader = Trader(channel, own, lambda: f"{own}-{next(ids)}", self._station_ids)
            return self._trader

    def _station_ids(self) -> set[str]:
        others = () if self.mesh is None else self.mesh.stations()
        return {f"{self.id:016x}", *(f"{other.station:016x}" for other in others)}

    @property
    def domain_manager(self) -> DomainManager:
        """Channels with owners and members of all stations of the domain; see `heliograph.manager.domain`."""
        from heliograph.manager.domain import DomainManager  # noqa: PLC0415 - few stations have members

        self._check_usable()
        if self._managers is None:
            raise NotPossible("domain_manager", "is about a domain: hg.Station(domain=...)")
        with self._managing:
            if self._domain_manager is None:
                self._domain_manager = DomainManager(self.ports, self.timers, self.channel, self._managers)
            return self._domain_manager

    def _answering_manager(self) -> Manager | None:
        """For participants of other stations; None where nothing is kept."""
        return None if self._keeping is None or self._closed else self._own_manager()

    def _sweep(self) -> None:
        """Of a timer: have members leave whose lease is over, in a task of its own."""
        manager = self._manager
        if manager is not None and manager.has_leases and not self._closed:
            self.ports.tasks.spawn_soon("leases of members", partial(self._sweep_now, manager))

    def _sweep_now(self, manager: Manager) -> None:
        try:
            for done in manager.sweep():
                log.warning("%s", done)
        except HeliographError as error:
            if not self._closed:
                log.warning("members whose lease is over have not left yet: %s", error)

    def _own_manager(self) -> Manager:
        from heliograph.manager import Manager  # noqa: PLC0415 - few stations have members

        assert self._keeping is not None
        with self._managing:
            if self._manager is None:
                manager = Manager(
                    self.ports,
                    self.channel,
                    self._channels.get,
                    self._check_usable,
                    note_suspension=self._keeping.note_suspension,
                    note_members_only=self._keeping.note_members_only,
                )
                self._manager = manager
                for channel in self.channels():
                    manager.meet(channel)
                self.timers.every(SWEEP_SECONDS, self._sweep)
            return self._manager

    def band_workers(self) -> tuple[BandWorker, ...]:
        with self._lock:
            return tuple(self._workers)

    def channels(self) -> tuple[Channel[Any], ...]:
        with self._lock:
            return tuple(self._channels.values())

    def busy(self) -> float:
        """Seconds that the queued callback has been running that runs longest; 0 when none runs."""
        return self._pools.busy()

    def stalls(self) -> dict[str, int]:
        """What could not be done at once because the host had no thread or descriptor left, and how often."""
        counts = self.ports.tasks.stalls.counts + Counter({} if self.mesh is None else self.mesh.stalls)
        return dict(counts)

    def stats(self) -> dict[str, ChannelStats]:
        """A snapshot of every channel."""
        return {channel.name: channel.stats() for channel in self.channels()}

    def snapshot(self, channel: str | None = None) -> StationSnapshot:
        """All that faces show of this station, as plain data; see `heliograph.monitoring.snapshot`.

        Args:
            channel: only this one.
        """
        self._check_usable()
        return seen.take(self._seen, channel)

    @property
    def asker(self) -> Asker:
        """Answers why receivers got events or did not."""
        from heliograph.monitoring.why import Asker  # noqa: PLC0415 - few programs ask

        with self._lock:
            if self._asker is None:
                self._asker = Asker(self._seen, self._channels.get)
            return self._asker

    def metrics(self) -> str:
        """The same in Prometheus' text format, which the page serves as `/metrics`."""
        from heliograph.monitoring.prometheus import text_of  # noqa: PLC0415 - few programs ask

        return text_of(self.snapshot())

    @names_options
    def close(self, timeout: float = DRAIN_LIMIT) -> dict[str, int]:
        """Deliver what waits for up to `timeout` seconds, then close everything.

        Returns:
            How many events each receiver had not been given in time; empty when all were delivered.
        """
        check_timeout("close", timeout, ends=True)
        with self._lock:
            if self._closed or self._forked:
                return {}
            self._closed = True
            _OPEN.discard(self)
            channels = list(self._channels.values())
            togethers = list(self._togethers)
        left: dict[str, int] = {}
        deadline = self.ports.clock.monotonic_ns() + round(timeout * 1e9)
        about = [channel for channel in channels if channel.name.startswith(RESERVED)]
        # What is derived of a history is read from it while that is open.
        derived = [channel for channel in about if channel.derives is not None and channel.store is not None]
        about = [channel for channel in about if channel not in derived]
        others = [*derived, *(channel for channel in channels if channel not in (*about, *derived))]
        run_all(
            [
                lambda: None if self._page_server is None else self._page_server.close(),
                lambda: None if self._domain_manager is None else self._domain_manager.close(),
                lambda: None if self._discovery is None else self._discovery.close(),
                *(partial(self._close_channel, channel, deadline, left) for channel in others),
                *(partial(self._close_together, together, deadline, left) for together in togethers),
                self._derivations.close,
                self._recorder.close,
                *(partial(self._close_channel, channel, deadline, left) for channel in about),
                lambda: (
                    None if self.mesh is None else self.mesh.close(seconds_until(self.ports.clock, deadline))
                ),
                # They have got what was sent, and deliver it before they end.
                *(partial(self._close_worker, worker, deadline) for worker in self.band_workers()),
                self.timers.close,
                self._pools.close,
                lambda: None if self._keeping is None else self._keeping.close(),
                partial(self._loop.stop, timeout),
                lambda: self._disk.close() if isinstance(self._disk, LocalDisk) else None,
            ]
        )
        return left

    async def aclose(self, timeout: float = DRAIN_LIMIT) -> dict[str, int]:  # noqa: ASYNC109 - it is what close takes
        """As `close`, for asyncio: `async def` callbacks go on while it waits."""
        return await asyncio.to_thread(self.close, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "forked" if self._forked else "closed" if self._closed else f"{len(self._channels)} channels"
        return f"<Station {self.id:016x}, {state}>"

    def tell_mismatch(
        self, channel: str, receiver: str, text: str, *, kind: Literal["mismatch", "granted"] = "mismatch"
    ) -> None:
        """Tell on `$station` why two ends do not meet, or what was granted; for faces of channels."""
        self._events.tell(kind, channel, receiver, text)

    def forget_pattern(self, subscription: NamePatternSubscription | ChannelWatch) -> None:
        with self._lock:
            if subscription in self._patterns:
                self._patterns.remove(subscription)
        if self._discovery is not None:
            self._discovery.wake()

    def _forget_worker(self, worker: BandWorker) -> None:
        with self._lock:
            if worker in self._workers:
                self._workers.remove(worker)

    def _create(
        self, name: str, types: tuple[type[Any], ...], qos: QoS | None, mode: str | None, access: Access
    ) -> Channel[Any]:
        kept = self._keeps(name)
        if mode == "open" and not kept:
            raise NoSuchChannel(name)
        if mode == "create" and kept:
            raise ChannelExists(name)
        if kept and qos is not None and not qos.journalled:
            raise NotPossible(
                name, "has a history in this folder: leave out qos=, or durability='persistent'"
            )
        if qos is None:
            qos = self._keeping.charter(name).qos() if kept and self._keeping is not None else QoS()
        qos = self._configuration.qos(name, qos)
        if not types:
            raise types_needed(name, kept=kept, joined=self.mesh is not None)
        if qos.journalled and self._services.open_store is None:
            raise NotPossible(name, "durability='persistent' needs a folder: hg.Station('data')")
        channel = self._channels[name] = Channel(name, types, qos, self._services, access)
        if self._manager is not None:
            self._manager.meet(channel)
        return channel

    def keep_for_others(self) -> None:
        """Keep persistent channels that stations of the domain without a folder open and nobody keeps."""
        from heliograph.links.history.directory import ForOthers  # noqa: PLC0415 - few stations keep for others

        if self._keeping is None or self.mesh is None:
            needed = "needs a folder and a domain: hg.Station('data', domain='a')"
            raise NotPossible("keep_for_others", needed)
        ForOthers(self.channel, self._channels.get, self.mesh, self.ports.tasks)

    def _recorded(self, name: str, qos: QoS | None) -> QoS | None:
        """How a new channel is kept in the domain, where it would be kept by nobody; None: it is not."""
        if self.mesh is None or (qos is not None and qos.journalled):
            return None
        is_own = name.startswith(RESERVED) and qos is not None  # asked for by who opens it
        if name in self._channels or is_own or self._keeps(name):
            return None
        return self.mesh.recorded(name, qos)

    def _learned_types(self, name: str) -> tuple[type[Any], ...]:
        """For a channel that is opened without a class: classes made of the formats that others have."""
        if self.mesh is None or name in self._channels:
            return ()
        from heliograph.links.history.directory import MEET_LIMIT, classes_of  # noqa: PLC0415 - most have the class

        self.mesh.meet_all(MEET_LIMIT)
        return tuple(classes_of(self.mesh, name))

    @property
    def domain(self) -> str | None:
        """The domain that it has joined; None: it is on its own."""
        return self._domain

    def keeps(self, name: str) -> bool:
        """Whether a channel's history is kept, in its folder or by a station of the domain."""
        return self._keeps(name) or (self.mesh is not None and self.mesh.recorded(name, None) is not None)

    def _keeps(self, name: str) -> bool:
        return self._keeping is not None and self._keeping.has(name)

    def _shared(
        self,
        station_seq: Callable[[], int],
        on_error: Callable[[str, Header | None, BaseException], None] | None,
        *,
        priority: int | None,
        filtering: bool,
    ) -> ChannelContext:
        """What its channels have in common."""
        suppliers = count(1)
        return ChannelContext(
            self.ports,
            self._pools,
            self.timers,
            station_seq,
            lambda: f"{self.id:016x}-{next(suppliers)}",
            self._loop.get,
            self._events.reporting(reporter(on_error)),
            self._store_opener(),
            partial(Coordinator, self.ports),
            self._open_monitor,
            self._open_beside,
            self._channel_changed,
            self._channel_closed,
            None if self.mesh is None else self.mesh.fetch_kept,
            (lambda: None) if self.mesh is None else self.mesh.meet_all,
            (lambda _: frozenset()) if self.mesh is None else self.mesh.forget_dead,
            open_kept=self._open_kept,
            open_later=None if self._keeping is None else self._keeping.open_later,
            suspended=(lambda _: None) if self._keeping is None else self._keeping.suspended,
            priority=priority,
            filtering=filtering,
            filters=self._configuration.filters_of,
            settling=(lambda _: None) if self.mesh is None else self.mesh.gates.settling,
            observe=self._recorder.observe,
            why=lambda *asked: self.asker.why(*asked),  # noqa: PLW0108 - made when asked
            remote_answerers=self._linked_answerers(),
            remote_states=self._linked_states(),
            remote_operations=self._linked_operations(),
            remote_parameters=self._linked_parameters(),
            station=station_text(self.id, self._name),
            derive=self._derivations.derive,
        )

    def _joined(
        self,
        identity: Identity,
        transport: Callable[[int], Transport] | Carrier | None,
        peer_limit: float | None,
        on_error: OnError | None,
        network: Network,
    ) -> Mesh:
        report = reporter(on_error)
        try:
            return join(
                identity,
                self.ports,
                self._channels.get,
                self._pools.reader,
                transport=transport,
                peer_limit=peer_limit,
                report=report,
                network=network,
            )
        except BaseException:
            if self._keeping is not None:
                self._keeping.close()
            raise

    def _linked_answerers(self) -> LinkedAnswerers | None:
        if self.mesh is None:
            return None
        from heliograph.links.services.answerers import LinkedAnswerers  # noqa: PLC0415 - as links are

        return LinkedAnswerers(self.mesh, self._channels.get, self.mesh.writer)

    def _linked_parameters(self) -> LinkedParameters | None:
        if self.mesh is None:
            return None
        from heliograph.links.services.parameters import LinkedParameters  # noqa: PLC0415 - as links are

        # Without the station's lock, which whoever opens a channel holds while it waits for another station.
        opened = self._channels
        return LinkedParameters(self.mesh, opened.get, lambda: tuple(opened.values()), self.ports.tasks)

    def _linked_operations(self) -> LinkedOperations | None:
        if self.mesh is None:
            return None
        from heliograph.links.services.operators import LinkedOperations  # noqa: PLC0415 - as links are

        return LinkedOperations(self.mesh, self._channels.get, self.ports.tasks)

    def _linked_managers(self) -> LinkedManagers | None:
        if self.mesh is None:
            return None
        from heliograph.links.services.monitors import answer_monitors  # noqa: PLC0415 - as links are

        answer_monitors(self.mesh, self._channels.get)
        from heliograph.links.services.managers import LinkedManagers  # noqa: PLC0415 - as links are

        return LinkedManagers(self.mesh, self._answering_manager, self.ports)

    def _linked_states(self) -> LinkedStates | None:
        if self.mesh is None:
            return None
        from heliograph.links.services.states import LinkedStates  # noqa: PLC0415 - as links are

        return LinkedStates(self.mesh, self._channels.get, self.mesh.writer)

    def _store_opener(self) -> Any:
        """A station with a folder keeps history itself; one without has others of its domain keep it."""
        if self._keeping is not None:
            return self._keeping.open_store
        return None if self.mesh is None else self.mesh.open_store

    def _close_channel(self, channel: Channel[Any], deadline: int, left: dict[str, int]) -> None:
        waiting = channel.close(seconds_until(self.ports.clock, deadline))
        left.update({f"{channel.name}/{name}": n for name, n in waiting.items()})

    def _close_together(self, together: PatternSubscription, deadline: int, left: dict[str, int]) -> None:
        together.settle(seconds_until(self.ports.clock, deadline))
        if waiting := together.close():
            left[together.name] = waiting

    def _close_worker(self, worker: BandWorker, deadline: int) -> None:
        worker.close(seconds_until(self.ports.clock, deadline))

    def _open_monitor(
        self, channel: str, qos: QoS, resend: Callable[..., object], add_dead_letter: Callable[..., object]
    ) -> Watching:
        return Watching(
            self.ports,
            channel,
            timeout=qos.ack_timeout,
            resends=qos.resends,
            resend=resend,
            add_dead_letter=add_dead_letter,
        )

    def _open_beside(self, name: str, types: tuple[type[Event], ...], qos: QoS) -> Channel[Any]:
        """A channel that another one of this station needs; one that is there is taken as it is."""
        return self._open_kept(name, types) or self.channel(name, *types, qos=qos)

    def _open_derived(
        self,
        name: str,
        cls: type[Event],
        qos: QoS,
        services: ChannelContext,
        begin: Callable[[Channel[Any]], object],
    ) -> Channel[Any]:
        """A channel that is derived from another one of this station."""
        self._check_usable()
        channel: Channel[Any] = Channel(name, (cls,), qos, services)
        begin(channel)
        with self._lock:
            self._channels[name] = channel
        self._announce(channel)
        return channel

    def _open_kept(self, name: str, types: tuple[type[Event], ...]) -> Channel[Any] | None:
        """One that is open, or whose history is here."""
        if self._channels.get(name) is None and not self._keeps(name):
            return None
        return self.channel(name, *types)

    def _channel_changed(self, channel: Channel[Any]) -> None:
        if channel.derives is not None:
            channel.derives.original.neighbours.wake()
        if self.mesh is not None:
            self.mesh.tell(channel)

    def _channel_closed(self, channel: Channel[Any]) -> None:
        if self._channels.get(channel.name) is not channel:
            return  # it could not be opened, and is closed under the lock
        with self._lock:
            if self._closed:
                return  # what a station closes it still tells of
            del self._channels[channel.name]
        self._events.tell("closed", channel.name)
        if self.mesh is not None:
            self.mesh.forget(channel.name)
        self._derivations.closed(channel)

    def _check_usable(self) -> None:
        if self._forked:
            raise ForkedStation("this station")
        if self._closed:
            raise Closed("this station")

    def _after_fork(self) -> None:
        self._forked = True
        _OPEN.discard(self)
        for channel in self._channels.values():
            channel.forked()
        if self.mesh is not None:
            self.mesh.abandon()
        for worker in self._workers:
            worker.abandon()


# After a fork the child has no threads: its copies of open stations must refuse instead of waiting for ever.
_STATIONS: weakref.WeakSet[Station] = weakref.WeakSet()


def _mark_forked() -> None:
    for station in list(_STATIONS):
        station._after_fork()  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_mark_forked)

# Who forgets `with` is served, too: a program that ends delivers what waits. Nobody else may hold them.
_OPEN: set[Station] = set()


def _close_open() -> None:
    """Before the threads of this process are gone. Each channel logs what could not be delivered in time."""
    for station in list(_OPEN):
        try:
            station.close()
        except Exception:
            log.exception("%r could not be closed when its program ended", station)


atexit.register(_close_open)


@cache
def _close_before_threads_end() -> None:
    """Zenoh's threads end with its sessions, and Python waits for them before it runs what is registered.

    As `concurrent.futures` does it. Where Python no longer has it, programs that leave their station open and
    linked to other hosts do not end by themselves.
    """
    register: Callable[[Callable[[], None]], None] | None = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_close_open)
