"""Federations of three to seven stations under one seed: what the seed plans, the run, and the promises.

    python -m heliograph.sim 17            # plays seed 17 and prints its story

A seed chooses an arrangement of domains, stations and gateways, whether the channel is live or kept, how the
network treats frames, and up to four faults: cut and parted connections, one-way silence, processes that are
killed, lose power or stand still, wall clocks that jump. The plan is data; the run is the product itself over
simulated ports, and the same seed gives the same run. When everything is healed the promises are checked:

    each receiver has each event once, those of one supplier in order       unless the plan allows a loss
    nothing is received that was not pushed, and nothing beyond its lifespan
    what a push acknowledged is in the history, in every domain that it crosses to, once and in order
    both ends of every link have a ledger that balances
    the gateway's consumer has nothing left to acknowledge
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from random import Random as Generator
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from heliograph.errors import HeliographError, PromiseBroken
from heliograph.federation.gateway import Gateway
from heliograph.links.transports.memory import MemoryNetwork
from heliograph.model.event import Event
from heliograph.qos.endpoint import PushOptions
from heliograph.qos.policies import QoS
from heliograph.sim.world import Simulation
from heliograph.station import Station

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from heliograph.channel.channel import Channel
    from heliograph.model.event import Header
    from heliograph.sim.medium import Medium
    from heliograph.sim.world import Process

CHANNEL: Final = "sim.readings"
PATIENCE: Final = 120.0
"""Simulated seconds within which all must have come after everything was healed."""
SUSPECT_AFTER: Final = 3.0
"""Seconds after which a silent station is suspected in these runs."""
STEP_NS: Final = 20_000
"""The most that a port call takes."""
LATE_NS: Final = 50_000_000
"""How much later than its lifespan a callback may begin: the time between the look and the call."""


class SimReading(Event, name="sim.reading"):
    """What is pushed."""

    source: str
    number: int
    pushed_ns: int
    """In simulated time."""


class PlannedFault(msgspec.Struct, frozen=True):
    """What goes wrong, when, and for how long; times in simulated seconds."""

    kind: Literal["cut", "part", "mute", "kill", "power", "pause", "jump"]
    victim: str
    """A process."""
    at: float
    seconds: float


class FederationPlan(msgspec.Struct, frozen=True):
    """What a seed has chosen."""

    seed: int
    kept: bool
    """Whether the channel is persistent."""
    domains: tuple[str, ...]
    sources: tuple[str, ...]
    """The domains with a station that pushes; in kept runs it keeps, too."""
    gateways: tuple[tuple[str, str], ...]
    """From which domain to which; the same pair twice is a second gateway."""
    receivers: tuple[str, ...]
    """The domains with a station that receives, or keeps."""
    events: int
    """Of each source."""
    loss: float
    duplication: float
    reordering: float
    delay: float
    lifespan: float | None
    faults: tuple[PlannedFault, ...]

    @property
    def stations(self) -> int:
        return len(self.sources) + len(self.receivers) + 2 * len(self.gateways)

    @property
    def may_lose(self) -> bool:
        """Whether live events may be lost for good: a process dies, or is away for longer than links wait."""
        away = sum(fault.seconds for fault in self.faults if fault.kind in ("part", "mute", "pause"))
        dies = any(fault.kind in ("kill", "power") for fault in self.faults)
        return self.lifespan is not None or dies or away > 0.7 * SUSPECT_AFTER

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"seed {self.seed}: {self.stations} stations, {'kept' if self.kept else 'live'}"
        yield f"  domains {', '.join(self.domains)}; sources in {', '.join(self.sources)}"
        yield f"  gateways {', '.join(f'{a} to {b}' for a, b in self.gateways) or 'none'}"
        yield f"  loss {self.loss}, duplication {self.duplication}, reordering {self.reordering}"
        yield f"  delay {self.delay}, lifespan {self.lifespan}"
        for fault in self.faults:
            yield f"  {fault.at:.2f} s: {fault.kind} {fault.victim} for {fault.seconds:.2f} s"


ARRANGEMENTS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]], ...]] = (
    # receivers, sources, gateways
    (("a", "a"), ("a",), ()),
    (("a", "a"), ("a", "a"), ()),
    (("b",), ("a",), (("a", "b"),)),
    (("b",), ("a",), (("a", "b"), ("a", "b"))),
    (("c",), ("a",), (("a", "b"), ("b", "c"))),
)


def plan_of(seed: int) -> FederationPlan:
    """What a seed chooses."""
    chance = Generator(f"{seed}/federation")  # noqa: S311 - repeatable by intent
    kept = chance.random() < 0.4
    receivers, sources, gateways = chance.choice(ARRANGEMENTS[2:] if kept else ARRANGEMENTS)
    processes = [
        *(f"source {n}" for n in range(len(sources))),
        *(f"gateway {n}" for n in range(len(gateways))),
        *(f"receiver {n}" for n in range(len(receivers))),
    ]
    is_rough = chance.random() < 0.6
    kinds = ["cut", "part", "mute", "pause", "jump", "kill", "power"]
    faults = [
        PlannedFault(
            chance.choice(kinds),  # type: ignore[arg-type]  # one of them
            chance.choice(processes),
            round(chance.uniform(0.0, 1.0), 2),
            round(chance.choice([0.05, 0.5, 2.0, 2.0 * SUSPECT_AFTER]), 2),
        )
        for _ in range(chance.randint(0, 4))
    ]
    lifespan = chance.choice([None, None, None, 0.4]) if not kept else None
    return FederationPlan(
        seed,
        kept,
        tuple(sorted({*receivers, *sources, *(one for pair in gateways for one in pair)})),
        sources,
        gateways,
        receivers,
        chance.randint(4, 10),
        round(chance.uniform(0, 0.25), 2) if is_rough else 0.0,
        round(chance.uniform(0, 0.25), 2) if is_rough else 0.0,
        round(chance.uniform(0, 0.25), 2) if is_rough else 0.0,
        chance.choice([0.0, 0.005, 0.02] if is_rough else [0.0, 0.02, 0.2]),
        lifespan,
        tuple(sorted(faults, key=lambda fault: fault.at)),
    )


class Host:
    """A simulated process with its stations, which can be killed and started again."""

    def __init__(self, federation: Federation, name: str, open_all: Callable[[Host], None]) -> None:
        self.name = name
        self.federation = federation
        self._open_all = open_all
        self.process: Process = federation.simulation.process(name)
        self.stations: list[tuple[str, Station]] = []
        self.gateway: Gateway | None = None
        self.is_down = False

    def open(self) -> None:
        self._open_all(self)

    def station(self, domain: str, *, keeps: bool) -> Station:
        """Open one in this process."""
        ports = self.process.ports if keeps else replace(self.process.ports, disk=None)
        network = self.federation.networks[domain]
        station = Station(
            domain=domain, name=self.name, ports=ports, transport=network.transport, peer_limit=SUSPECT_AFTER
        )
        self.stations.append((domain, station))
        return station

    def kill(self, *, power: bool) -> None:
        """As kill -9, or as a power loss."""
        tells = [self.federation.networks[domain].vanish(one.id) for domain, one in self.stations]
        medium: Medium = self.process.crash("random") if power else self.process.kill()
        self.is_down = True
        self.stations, self.gateway = [], None
        for tell in tells:
            tell()
        self._medium = medium

    def start_again(self) -> None:
        self.process = self.federation.simulation.process(self.name, medium=self._medium)
        self.is_down = False
        task = self.process.tasks.spawn(f"start of {self.name}", self.open)
        task.join()


class Federation:
    """One run of a plan."""

    def __init__(self, plan: FederationPlan, tell: Callable[[str], object] = lambda _: None) -> None:
        self.plan = plan
        self.simulation = Simulation(plan.seed, step_ns=STEP_NS)
        ports = replace(self.simulation.ports, disk=None)
        self.networks = {
            name: MemoryNetwork(
                ports, loss=plan.loss, duplication=plan.duplication, reordering=plan.reordering
            )
            for name in plan.domains
        }
        for network in self.networks.values():
            network.delay = plan.delay
        self._tell = tell
        self.qos = QoS(durability="persistent") if plan.kept else QoS(lifespan=plan.lifespan)
        self.pushed: dict[str, list[int]] = {}
        """By source, what it has begun to push."""
        self.acked: dict[str, list[int]] = {}
        self.received: dict[str, list[tuple[str, int]]] = {}
        """By receiver, in the order of arrival; a receiver that was started again is another one."""
        self.finished: set[str] = set()
        """The sources that have pushed all."""
        self.lives: Counter[str] = Counter()
        self.hosts: dict[str, Host] = {}
        for n, domain in enumerate(plan.sources):
            self._add(f"source {n}", self._source_in(domain))
        for n, (here, there) in enumerate(plan.gateways):
            self._add(f"gateway {n}", self._gateway_between(here, there))
        for n, domain in enumerate(plan.receivers):
            self._add(f"receiver {n}", self._receiver_in(domain))

    def run(self) -> None:
        """Play it; PromiseBroken says which promise did not hold."""
        self.simulation.run(self._story)

    # The hosts

    def _add(self, name: str, open_all: Callable[[Host], None]) -> None:
        self.hosts[name] = Host(self, name, open_all)

    def _source_in(self, domain: str) -> Callable[[Host], None]:
        def open_all(host: Host) -> None:
            station = host.station(domain, keeps=self.plan.kept)
            channel = station.channel(CHANNEL, SimReading, qos=self.qos)
            if self.lives[host.name]:
                host.process.tasks.spawn(f"pushes of {host.name}", lambda: self._push(host, channel))
            self.lives[host.name] += 1

        return open_all

    def _gateway_between(self, here: str, there: str) -> Callable[[Host], None]:
        def open_all(host: Host) -> None:
            # Where nobody else keeps the channel, the gateway does, in a journal of its own.
            keeps = self.plan.kept and there not in self.plan.receivers
            sides = host.station(here, keeps=False), host.station(there, keeps=keeps)
            host.gateway = Gateway(*sides, CHANNEL, name=host.name, start="earliest")

        return open_all

    def _receiver_in(self, domain: str) -> Callable[[Host], None]:
        def open_all(host: Host) -> None:
            station = host.station(domain, keeps=self.plan.kept)
            channel = station.channel(CHANNEL, SimReading, qos=self.qos)
            self.lives[host.name] += 1
            if not self.plan.kept:
                got = self.received[f"{host.name}, life {self.lives[host.name]}"] = []
                channel.subscribe(lambda reading, header: self._got(got, reading, header))

        return open_all

    def _got(self, got: list[tuple[str, int]], reading: SimReading, _: Header) -> None:
        got.append((reading.source, reading.number))
        age = self.now_ns - reading.pushed_ns
        limit = self.plan.lifespan
        if limit is not None and age > limit * 1e9 + LATE_NS:
            self._break(f"{reading.source} {reading.number} was delivered {age / 1e9:.3f} s after its push")

    @property
    def now_ns(self) -> int:
        return self.simulation.now_ns

    # The story

    def _story(self) -> None:
        for host in [host for host in self.hosts.values() if not host.name.startswith("gateway")]:
            host.process.tasks.spawn(f"start of {host.name}", host.open).join()
        for host in [host for host in self.hosts.values() if host.name.startswith("gateway")]:
            host.process.tasks.spawn(f"start of {host.name}", host.open).join()
        self._wait(self._is_linked, "all stations are linked")
        self._say("all stations are linked")
        suppliers = []
        for host in self._sources():
            channel = host.stations[0][1].channel(CHANNEL, SimReading)
            suppliers.append(
                host.process.tasks.spawn(f"pushes of {host.name}", partial(self._push, host, channel))
            )
        began = self.now_ns
        undone: list[tuple[float, Callable[[], None]]] = []
        for fault in self.plan.faults:
            self._play_until(began + round(fault.at * 1e9), undone)
            undo = self._do(fault)
            undone.append((self.now_ns + fault.seconds * 1e9, undo))
        while undone:
            self._play_until(round(min(at for at, _ in undone)), undone)
        self._heal()
        for host in self.hosts.values():
            if host.is_down:
                host.start_again()
        self._say("all is healed")
        self._wait(self._is_pushed, "all is pushed")
        self._wait(self._is_done, "all has come")
        self._check()

    def _play_until(self, at_ns: int, undone: list[tuple[float, Callable[[], None]]]) -> None:
        """Let time pass, and end the faults whose time is over."""
        while undone and min(at for at, _ in undone) <= at_ns:
            undone.sort(key=lambda pair: pair[0])
            at, undo = undone.pop(0)
            self._sleep_until(round(at))
            undo()
        self._sleep_until(at_ns)

    def _sleep_until(self, at_ns: int) -> None:
        if at_ns > self.now_ns:
            self.simulation.tasks.sleep((at_ns - self.now_ns) / 1e9)

    def _do(self, fault: PlannedFault) -> Callable[[], None]:
        """Have it happen; what is returned ends it."""
        host = self.hosts[fault.victim]
        self._say(f"{fault.kind} {fault.victim} for {fault.seconds} s")
        if fault.kind == "jump":
            host.process.clock.set_wall(by_ns=round(fault.seconds * 3_600e9))
            return lambda: None
        if host.is_down:
            return lambda: None
        if fault.kind in ("kill", "power"):
            host.kill(power=fault.kind == "power")
            return lambda: self._start_again(host)
        if fault.kind == "pause":
            host.process.pause()
            return host.process.go_on
        for domain, station in host.stations:
            network = self.networks[domain]
            for other in network.stations() - {station.id}:
                {"cut": network.cut, "part": network.part, "mute": network.mute}[fault.kind](
                    station.id, other
                )
        return self._heal

    def _heal(self) -> None:
        for network in self.networks.values():
            network.heal()

    def _start_again(self, host: Host) -> None:
        if host.is_down:
            self._say(f"{host.name} is started again")
            host.start_again()

    def _push(self, host: Host, channel: Channel[Any]) -> None:
        """Go on where the life before was: what is kept and not acknowledged is pushed again, by its id."""
        begun = self.pushed.setdefault(host.name, [])
        acked = self.acked.setdefault(host.name, [])
        done = acked if self.plan.kept else begun
        while len(done) < self.plan.events:
            number = len(done)
            if number >= len(begun):
                begun.append(number)
            while True:
                try:
                    channel.push(SimReading(host.name, number, self.now_ns), **self._id_of(host, number))
                    break
                except HeliographError as error:
                    if not error.retriable or not self.plan.kept:
                        break
                    host.process.tasks.sleep(0.1)
            acked.append(number)
            host.process.tasks.sleep(0.15 * host.process.random.uniform())
        self.finished.add(host.name)

    def _id_of(self, host: Host, number: int) -> PushOptions:
        return PushOptions(id=f"{host.name}/{number}") if self.plan.kept else PushOptions()

    def _sources(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.name.startswith("source")]

    # What is waited for

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        until = self.now_ns + round(PATIENCE * 1e9)
        while not done():
            if self.now_ns > until:
                self._break(f"not within {PATIENCE:.0f} s: {what}; {self._state()}")
            self.simulation.tasks.sleep(0.1)

    def _is_linked(self) -> bool:
        if any(
            not row.forwarded and row.waits_for for gateway in self._gateways() for row in gateway.stats()
        ):
            return False
        for gateway in self._gateways():
            if not gateway.stats():
                return False
        if self.plan.kept:
            return True
        for host in self._sources():
            domain, station = host.stations[0]
            wanted = sum(1 for one in self.plan.receivers if one == domain)
            wanted += sum(1 for here, _ in self.plan.gateways if here == domain)
            if _channel_of(station).neighbours.remote_consumers() < wanted:
                return False
        for n, (_, there) in enumerate(self.plan.gateways):
            _, station = self.hosts[f"gateway {n}"].stations[1]
            wanted = sum(1 for one in self.plan.receivers if one == there)
            wanted += sum(1 for here, _ in self.plan.gateways if here == there)
            if _channel_of(station).neighbours.remote_consumers() < wanted:
                return False
        return True

    def _gateways(self) -> list[Gateway]:
        return [host.gateway for host in self.hosts.values() if host.gateway is not None]

    def _is_pushed(self) -> bool:
        return all(host.name in self.finished for host in self._sources())

    def _is_done(self) -> bool:
        if self.plan.kept:
            wanted = {(name, n) for name, acked in self.acked.items() for n in acked}
            histories = self._histories()
            return all(wanted <= set(history) for history in histories.values()) and self._is_settled()
        if self.plan.may_lose:
            return self._is_settled()
        wanted = {(name, n) for name, acked in self.acked.items() for n in acked}
        return all(wanted <= set(got) for got in self.received.values())

    def _is_settled(self) -> bool:
        """Whether nothing is on its way any more."""
        if any(row.under_way for gateway in self._gateways() for row in gateway.stats()):
            return False
        for host in self.hosts.values():
            for _, station in host.stations:
                for stats in station.stats().values():
                    if any(counts.pending for counts in stats.consumers.values()):
                        return False
        return True

    def _histories(self) -> dict[str, list[tuple[str, int]]]:
        """What each keeper has, source and number in the order of its history."""
        found: dict[str, list[tuple[str, int]]] = {}
        for host in self.hosts.values():
            if host.name.startswith("gateway"):
                continue
            _, station = host.stations[0]
            store = _channel_of(station).store
            assert store is not None
            items, _ = store.read(0, 100_000)
            readings: list[Any] = [item[0] for item in items]
            found[host.name] = [(one.source, one.number) for one in readings]
        return found

    def _state(self) -> str:
        got = {name: len(one) for name, one in self.received.items()}
        acked = {name: len(one) for name, one in self.acked.items()}
        crossings = [str(row) for gateway in self._gateways() for row in gateway.stats()]
        return f"acknowledged {acked}, received {got}, {' '.join(crossings)}"

    # The promises

    def _check(self) -> None:
        self._say(self._state())
        for name, got in (self._histories() if self.plan.kept else self.received).items():
            self._check_order(name, got)
        if self.plan.kept:
            self._check_kept()
            self._check_acks()
        elif not self.plan.may_lose:
            for name, got in self.received.items():
                for source, acked in self.acked.items():
                    here = [number for one, number in got if one == source]
                    if here != acked:
                        self._break(f"{name} has {here} of {source}, not {acked}")
        self._check_ledgers()

    def _check_order(self, name: str, got: list[tuple[str, int]]) -> None:
        """Each once, those of one source in order, nothing that was not pushed."""
        for event, times in Counter(got).items():
            if times > 1:
                self._break(f"{name} has {event[0]} {event[1]} {times} times")
        for source, begun in self.pushed.items():
            here = [number for one, number in got if one == source]
            if here != sorted(here) and len(self.plan.gateways) == len(set(self.plan.gateways)):
                self._break(f"{name} has the events of {source} out of order: {here}")
            if set(here) - set(begun):
                self._break(f"{name} has of {source} what was never pushed: {set(here) - set(begun)}")

    def _check_kept(self) -> None:
        histories = self._histories()
        for source, acked in self.acked.items():
            for name, history in histories.items():
                if name.startswith("source") and name != source:
                    continue
                if lost := set(acked) - {number for one, number in history if one == source}:
                    self._break(f"{name} has lost {sorted(lost)} of {source}, which were acknowledged")

    def _check_acks(self) -> None:
        """A gateway that is started again takes nothing of what was acknowledged before."""
        # A gateway whose keeper was away takes what it could not acknowledge there once more when it is back.
        self._wait(
            lambda: self._is_crossing() and self._is_settled() and self._is_acknowledged(),
            "what gateways have handed on is acknowledged",
        )
        gateways = [host for host in self.hosts.values() if host.gateway is not None]
        for host in gateways:
            host.kill(power=False)
            host.start_again()
        self._wait(self._is_crossing, "every gateway is there again")
        self.simulation.tasks.sleep(2.0)
        for host in gateways:
            for row in host.gateway.stats() if host.gateway is not None else ():
                if row.taken:
                    self._break(f"{host.name} was given {row.taken} events again that it had acknowledged")

    def _is_acknowledged(self) -> bool:
        """Whether every keeper has it that its gateways have handed on all that it keeps."""
        return not any(
            durable.lag
            for host in self.hosts.values()
            if host.name.startswith("source")
            for _, station in host.stations
            for channel in station.snapshot().channels
            for durable in channel.durable
        )

    def _is_crossing(self) -> bool:
        rows = [gateway.stats() for gateway in self._gateways()]
        return all(rows) and not any(row.waits_for for one in rows for row in one)

    def _check_ledgers(self) -> None:
        for host in self.hosts.values():
            for domain, station in host.stations:
                for stats in station.stats().values():
                    if not stats.balanced:
                        self._break(f"the ledger of {host.name} in {domain} does not balance: {stats}")

    def _break(self, promise: str) -> None:
        self._say(promise)
        raise PromiseBroken(promise, seed=self.plan.seed)

    def _say(self, words: str) -> None:
        self._tell(f"{self.now_ns / 1e9:9.3f} s  {words}")


def _channel_of(station: Station) -> Channel[Any]:
    return next(channel for channel in station.channels() if channel.name == CHANNEL)


def play(seed: int, tell: Callable[[str], object] = lambda _: None) -> FederationPlan:
    """Run a seed; PromiseBroken when a promise did not hold."""
    plan = plan_of(seed)
    for line in plan.lines():
        tell(line)
    Federation(plan, tell).run()
    return plan
