"""`helio doctor`: what is wrong with a domain and this machine, each finding with the command that mends it.

helio doctor --domain airspace --folder data       exit code 1 when there is a problem or warning
helio doctor --config station.toml                 also the keys, ports and hosts of a station
helio doctor --json                                for monitoring
"""

from __future__ import annotations

import os
import resource
import shutil
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from heliograph.cli.output import JsonFlag, counted, print_json, print_line, size_text
from heliograph.cli.station import MOST_DOMAINS, Domain, in_domain, meet_all

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from heliograph.monitoring.doctor import Finding
    from heliograph.monitoring.snapshot import StationSnapshot

FOUND = 1
DESCRIPTORS: Final = 1_024
SHARED_MEMORY: Final = 64 << 20
FREE: Final = 1 << 30
EXTRAS: Final = {
    "page": ("starlette", "the page of a station"),
    "spark": ("pyspark", "histories in Spark, helio pipeline"),
    "network": ("zenoh", "links to other hosts"),
}


def doctor(
    *,
    domain: Domain = "default",
    folder: Annotated[
        str | None, typer.Option(help="A station's folder to look at, too.", show_default=False)
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            help="The TOML file of a station: its keys, ports and hosts are looked at.", show_default=False
        ),
    ] = None,
    listen: Annotated[
        list[str] | None, typer.Option(help="A place to listen that should be free.", show_default=False)
    ] = None,
    connect: Annotated[
        list[str] | None, typer.Option(help="A host that should be reached.", show_default=False)
    ] = None,
    identity: Annotated[
        str | None, typer.Option(help="A folder of keys to look at; see helio keys.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Look for what is wrong: stations, links, names, receivers, consumers, disks, keys, ports, permissions.

    Exit code 1: there is a problem or a warning. Notes are for information.
    """
    network = _network(config, listen or (), connect or (), identity)
    of_domain, processes = _domain(domain)
    found = [*_machine(), *_folder(folder), *network(domain, processes), *of_domain]
    bad = sum(one.severity != "note" for one in found)
    if as_json:
        import msgspec  # noqa: PLC0415 - commands import what they need when they run

        print_json({"domain": domain, "findings": [msgspec.structs.asdict(one) for one in found], "bad": bad})
    else:
        _print(found, bad)
    if bad:
        raise typer.Exit(FOUND)


def _print(found: list[Finding], bad: int) -> None:
    for one in found:
        print_line(f"{one.severity.upper():8} {one.what}: {one.where}")
        print_line(f"         {one.text}")
        if one.command:
            print_line(f"         try: {one.command}")
    print_line(f"{counted(bad, 'finding')} to mend" if bad else "nothing to mend")


def _network(
    config: str | None, listen: Sequence[str], connect: Sequence[str], identity: str | None
) -> Callable[[str, Collection[int]], Iterator[Finding]]:
    """Looks at what a station of these options has outside of its process; mistakes in them fail at once."""
    from heliograph.cli.doctor_network import examine_network  # noqa: PLC0415 - as above
    from heliograph.runtime.endpoints import Network, parse  # noqa: PLC0415 - as above
    from heliograph.station import configuration_of  # noqa: PLC0415 - as above

    network = configuration_of(config).network(Network(listen, connect, insecure=True, identity=identity))
    for endpoint in (*network.listen, *network.connect):
        parse(endpoint)
    return partial(examine_network, network)


def _domain(domain: str) -> tuple[list[Finding], frozenset[int]]:
    """Findings, and the processes of its stations."""
    import msgspec  # noqa: PLC0415 - as above

    from heliograph.errors.sentences import hint  # noqa: PLC0415 - as above
    from heliograph.facades.dcps.examination import announced, examine_endpoints  # noqa: PLC0415 - as above
    from heliograph.links.transports.discovery import DiscoveryFolder, domains  # noqa: PLC0415 - as above
    from heliograph.monitoring.doctor import ORDER, Finding, examine  # noqa: PLC0415 - as above
    from heliograph.monitoring.snapshot import ask_all  # noqa: PLC0415 - as above
    from heliograph.station import Station  # noqa: PLC0415 - as above

    with Station(domain=domain, name="helio doctor") as here:
        mesh = meet_all(here)
        stations, silent = ask_all(mesh)
        known = {here.id, *(other.station for other in mesh.stations())}
        silent += [f"station {one:016x}" for one in sorted(DiscoveryFolder(domain).alive() - known)]
        now = here.ports.clock.time_ns()
        endpoints = announced(here)
    found = [*examine(stations, silent, now), *examine_endpoints(endpoints)]
    found += _other_domains(domain, stations)
    found = [msgspec.structs.replace(one, command=in_domain(one.command, domain)) for one in found]
    found.sort(key=lambda one: ORDER[one.severity])
    if not stations and not silent:
        others = ", ".join(name for name in domains() if name != domain)
        text = f"no station of domain {domain!r} is there"
        text += f"; there are domains {others}{hint(domain, others.split(', '))}" if others else ""
        found.append(Finding("note", "empty domain", domain, text, "helio ls"))
    return found, frozenset(one.pid for one in stations)


def _other_domains(domain: str, stations: Sequence[StationSnapshot]) -> list[Finding]:
    """Channels that are written here and read in another domain of this host, or the other way round."""
    from heliograph.links.transports.discovery import domains  # noqa: PLC0415 - as above
    from heliograph.monitoring.doctor import examine_domains  # noqa: PLC0415 - as above
    from heliograph.monitoring.snapshot import ask_all  # noqa: PLC0415 - as above
    from heliograph.station import Station  # noqa: PLC0415 - as above

    if not stations:
        return []
    elsewhere = {}
    for other in [name for name in domains() if name != domain][:MOST_DOMAINS]:
        with Station(domain=other, name="helio doctor") as there:
            elsewhere[other] = ask_all(meet_all(there))[0]
    return examine_domains(domain, stations, elsewhere)


def _machine() -> Iterator[Finding]:
    from heliograph.monitoring.doctor import Finding  # noqa: PLC0415 - as above

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS:
        text = f"a process may open {soft} files and sockets; stations with many channels need more"
        yield Finding("warning", "few descriptors", "this machine", text, f"ulimit -n {min(hard, 65_536)}")
    shared = Path("/dev/shm")  # noqa: S108 - that is what is looked at
    if not shared.is_dir() or not os.access(shared, os.W_OK):
        text = f"{shared} cannot be written: stations of this host use sockets, which are slower"
        yield Finding("warning", "no shared memory", "this machine", text, "mount -t tmpfs tmpfs /dev/shm")
    elif (free := shutil.disk_usage(shared).free) < SHARED_MEMORY:
        text = f"{size_text(free)} of shared memory are free; a ring takes up to 64 MiB"
        yield Finding("warning", "little shared memory", "this machine", text, "docker run --shm-size=1g ...")
    yield from _discovery()
    for extra, (package, what) in EXTRAS.items():
        if find_spec(package) is None:
            text = f"{what}: {package} is not installed"
            yield Finding("note", "extra missing", extra, text, f"pip install 'heliograph[{extra}]'")


def _discovery() -> Iterator[Finding]:
    """The folder in which stations of this user find each other."""
    from heliograph.errors import HeliographError  # noqa: PLC0415 - as above
    from heliograph.links.transports.discovery import domains  # noqa: PLC0415 - as above
    from heliograph.monitoring.doctor import Finding  # noqa: PLC0415 - as above

    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and not (Path(runtime).is_dir() and os.access(runtime, os.W_OK)):
        text = f"XDG_RUNTIME_DIR is {runtime}, which this user cannot write: stations do not meet there"
        yield Finding("problem", "no place to meet", "this machine", text, "unset XDG_RUNTIME_DIR")
        return
    try:
        domains()
    except (HeliographError, OSError) as error:
        yield Finding("problem", "no place to meet", "this machine", str(error), "look at its permissions")


def _folder(folder: str | None) -> Iterator[Finding]:
    """A station's folder, whether or not its station runs."""
    from heliograph.monitoring.doctor import LAG, Finding  # noqa: PLC0415 - as above

    if folder is None:
        return
    path = Path(folder)
    if not path.is_dir():
        command = f"helio station --folder {folder}"
        yield Finding("problem", "no such folder", folder, "it is not there", command)
        return
    if not os.access(path, os.W_OK | os.X_OK):
        text = "this user cannot write it: a station here could keep nothing"
        yield Finding("problem", "no permission", folder, text, f"chown -R $USER {folder}")
        return
    usage: Any = shutil.disk_usage(path)
    if usage.free < FREE:
        text = f"{size_text(usage.free)} of {size_text(usage.total)} are free"
        yield Finding("problem", "disk almost full", folder, text, "retention: hg.Limits(...), helio purge")
    from heliograph.errors import HeliographError  # noqa: PLC0415 - as above
    from heliograph.journal.consumers.lag import lag  # noqa: PLC0415 - as above

    try:
        places = lag(folder)
    except HeliographError as error:
        command = f"helio journal verify {folder}; helio journal repair {folder} --dry-run"
        yield Finding("problem", "folder cannot be read", folder, str(error), command)
        return
    for one in places:
        if one.events >= LAG:
            text = f"{one.consumer} is {one.events} events behind; its owner is {one.owner}"
            command = f"helio journal consumers {folder}"
            yield Finding("warning", "lagging consumer", one.channel, text, command)
