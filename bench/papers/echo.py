"""ECho, event services for high performance computing: figures 2, 3, 6, 7 and 8, tables 1 and 2.

A record is a number and an array of doubles, from 100 bytes to 100 KB. It is written in one of these forms,
sent to another process over a Unix socket, read there, written and sent back, and read here:

    generated     native bodies, read by generated code: ECho's NDR with dynamic code generation
    interpreted   the same bodies, read by walking the format
    fixed wire    one byte order for everybody, as XDR and CORBA: copied and swapped on both sides
    pickle, JSON, XML

*Like machines* have one byte order. *Unlike* ones are two programs of this machine, one of which writes the
other byte order: with native bodies the receiver swaps, with a fixed wire both sides do. All forms use the
same socket and the same framing, so what differs is the form. For the process at the other end this module
runs once more, as a program.
"""

from __future__ import annotations

import pickle
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple
from xml.etree import ElementTree as ET

import msgspec
import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - the event class reads its annotations

import heliograph as hg
from bench.environment import variables
from bench.harness import Fact, Size
from bench.papers.experiment import Experiment, experiment
from bench.papers.figure import Series, chart
from heliograph import codec
from heliograph.codec import native
from heliograph.codec.interpret import interpreted_decoder
from heliograph.model.event import format_of, info_of
from heliograph.model.layout import native_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES: Final = {"100 B": 11, "1 KB": 127, "10 KB": 1_279, "100 KB": 12_799}
"""Doubles of a record of each size."""
LARGEST: Final = "100 KB"
ROUNDS: Final = 200
MOST_NS: Final = 1_000_000_000
"""For so long a form and size is measured, though that be fewer rounds."""
LENGTH: Final = struct.Struct(">I")
SWAPPED: Final[Any] = ">" if sys.byteorder == "little" else "<"
ACK: Final = b"done"


class Record(hg.Event, name="echo.record", body="native"):
    number: int
    values: Annotated[NDArray[np.float64], hg.Shape(None)]


class Prefixed(hg.Event, name="echo.record", body="native"):
    """With a field that the receiver does not expect, before all others."""

    unexpected: float
    number: int
    values: Annotated[NDArray[np.float64], hg.Shape(None)]


class Appended(hg.Event, name="echo.record", body="native"):
    """The same behind all others."""

    number: int
    values: Annotated[NDArray[np.float64], hg.Shape(None)]
    unexpected: float = 0.0


class Form(NamedTuple):
    """How a record becomes bytes, and a record again."""

    write: Callable[[Record], bytes]
    read: Callable[[Any], Any]


def _write_fixed(record: Record) -> bytes:
    return struct.pack(">q", record.number) + record.values.astype(">f8").tobytes()


def _read_fixed(body: Any) -> Record:
    (number,) = struct.unpack_from(">q", body)
    return Record(number, np.frombuffer(body, ">f8", offset=8).astype(np.float64))


def _write_xml(record: Record) -> bytes:
    root = ET.Element("record", number=str(record.number))
    for value in record.values.tolist():
        ET.SubElement(root, "v").text = repr(value)
    return ET.tostring(root)


def _read_xml(body: Any) -> Record:
    root = ET.fromstring(bytes(body))  # written by ourselves
    return Record(int(root.attrib["number"]), np.array([float(v.text or "") for v in root]))


def _write_json(record: Record) -> bytes:
    return msgspec.json.encode([record.number, record.values.tolist()])


def _read_json(body: Any) -> Record:
    number, values = msgspec.json.decode(body, type=tuple[int, list[float]])
    return Record(number, np.array(values))


def _write_pickle(record: Record) -> bytes:
    return pickle.dumps((record.number, record.values), 5)


def _read_pickle(body: Any) -> Record:
    return Record(*pickle.loads(body))  # written by ourselves


FORMS: Final = {
    "generated": Form(codec.encoder(Record).encode, codec.decoder(format_of(Record), Record)),
    "interpreted": Form(codec.encoder(Record).encode, interpreted_decoder(format_of(Record), Record)),
    "fixed wire": Form(_write_fixed, _read_fixed),
    "pickle": Form(_write_pickle, _read_pickle),
    "JSON": Form(_write_json, _read_json),
    "XML": Form(_write_xml, _read_xml),
}


def record_of(size: str, seed: int = 0) -> Record:
    return Record(7, np.random.default_rng(seed).normal(size=SIZES[size]))


def swapped(cls: type[hg.Event]) -> tuple[Any, Callable[[Any], bytes]]:
    """The format of a class in the other byte order, and what writes it."""
    wire = native_format(info_of(cls).name, list(info_of(cls).types.items()), (), SWAPPED)
    return wire, native.make_encoder(wire)[0]


def _send(end: socket.socket, body: bytes) -> None:
    end.sendall(LENGTH.pack(len(body)))
    end.sendall(body)


def _receive(end: socket.socket, into: bytearray) -> memoryview:
    _fill(end, memoryview(into)[: LENGTH.size])
    (length,) = LENGTH.unpack_from(into)
    body = memoryview(into)[:length]
    _fill(end, body)
    return body


def _fill(end: socket.socket, view: memoryview) -> None:
    while view:
        view = view[end.recv_into(view) :]


ROOM: Final = 8 << 20
"""Bytes of the largest record in any form."""


def other_process(descriptor: int) -> None:
    """Read each record and send it back; for a stream, say at its end that it was read."""
    into, asked = bytearray(ROOM), bytearray(2)
    forms = list(FORMS.values())
    with socket.socket(fileno=descriptor) as end:
        while True:
            _fill(end, memoryview(asked))
            if asked[0] == ord("q"):
                return
            if asked[0] == ord("s"):
                _send(end, ACK)
                continue
            form = forms[asked[1]]
            record = form.read(_receive(end, into))
            if asked[0] == ord("r"):
                _send(end, form.write(record))


@contextmanager
def opposite() -> Iterator[socket.socket]:
    """A process that answers, in the form in which it is asked."""
    here, there = socket.socketpair()
    command = [sys.executable, "-m", "bench.papers.echo", str(there.fileno())]
    process = subprocess.Popen(command, pass_fds=[there.fileno()], env=variables())
    there.close()
    try:
        with here:
            round_trip(here, "generated", record_of("1 KB"), 1)  # it is there
            yield here
            here.sendall(b"q\0")
    finally:
        process.wait(30)


def round_trip(end: socket.socket, name: str, record: Record, rounds: int) -> float:
    """The median round trip in µs."""
    into, form = bytearray(ROOM), FORMS[name]
    asked = bytes((ord("r"), list(FORMS).index(name)))
    times: list[int] = []
    for number in range(rounds + 3):
        if sum(times) > MOST_NS:
            break
        begin = time.perf_counter_ns()
        body = form.write(record)
        end.sendall(asked)
        _send(end, body)
        form.read(_receive(end, into))
        if number >= 3:  # the first ones warm caches up
            times.append(time.perf_counter_ns() - begin)
    return median(times) / 1e3


def bandwidth(end: socket.socket, name: str, record: Record, rounds: int) -> float:
    """Megabytes of the records' values that are written, carried and read in a second."""
    into, form = bytearray(ROOM), FORMS[name]
    asked = bytes((ord("d"), list(FORMS).index(name)))
    begin = time.perf_counter_ns()
    sent = 0
    while sent < rounds and time.perf_counter_ns() - begin < MOST_NS:
        body = form.write(record)
        end.sendall(asked)
        _send(end, body)
        sent += 1
    end.sendall(b"s\0")
    _receive(end, into)
    return record.values.nbytes * sent / ((time.perf_counter_ns() - begin) / 1e9) / 1e6


def cost(function: Callable[[Any], object], argument: Any, rounds: int) -> float:
    """The median of a call in µs of processor time; short ones are timed together."""
    begin = time.perf_counter_ns()
    function(argument)
    at_once = max(1, min(1_000, 200_000 // max(1, time.perf_counter_ns() - begin)))
    times: list[float] = []
    for _ in range(rounds):
        if sum(times) * at_once > MOST_NS:
            break
        begin = time.thread_time_ns()
        for _ in range(at_once):
            function(argument)
        times.append((time.thread_time_ns() - begin) / at_once)
    return median(times) / 1e3


def _copy(body: Any) -> bytes:
    return bytes(memoryview(body))


def _rounds(size: Size) -> int:
    return 5 if size.quick else ROUNDS


def _sizes(size: Size) -> list[str]:
    return ["1 KB"] if size.quick else list(SIZES)


def _by_form(size: Size, measure: Callable[..., float]) -> dict[str, dict[str, float]]:
    rounds, labels = _rounds(size), _sizes(size)
    with opposite() as end:
        return {
            name: {label: measure(end, name, record_of(label), rounds) for label in labels} for name in FORMS
        }


def _series(found: dict[str, dict[str, float]]) -> list[Series]:
    return [
        Series(name, tuple((8.0 * SIZES[label], value, value, value) for label, value in by_size.items()))
        for name, by_size in found.items()
    ]


@experiment("echo-round-trips")
def figure_2(size: Size) -> Experiment:
    found = _by_form(size, round_trip)
    best = all(min(found, key=lambda name: found[name][label]) == "generated" for label in _sizes(size))
    slower = min(found["XML"][label] / found["generated"][label] for label in _sizes(size))
    return Experiment(
        "echo-round-trips",
        "ECho, Figure 2: round trips against size",
        "To another process and back over a Unix socket, written and read on both sides; median in µs.",
        ("form", *_sizes(size)),
        tuple((name, *(f"{v:.0f}" for v in by_size.values())) for name, by_size in found.items()),
        (
            Fact("native bodies with generated code are fastest at every size", best),
            Fact(f"XML takes {slower:.1f} times as long or more; at least 10", slower >= 10),
        ),
        chart(_series(found), "bytes", "round trip (µs)", log_x=True),
    )


@experiment("echo-bandwidth")
def figure_3(size: Size) -> Experiment:
    found = _by_form(size, bandwidth)
    most = max(_sizes(size), key=SIZES.__getitem__)
    others = max(found[name][most] for name in ("fixed wire", "pickle", "JSON", "XML"))
    return Experiment(
        "echo-bandwidth",
        "ECho, Figure 3: bandwidth",
        "Records one after the other to another process, written here and read there; MB of values a second.",
        ("form", *_sizes(size)),
        tuple((name, *(f"{v:.1f}" for v in by_size.values())) for name, by_size in found.items()),
        (
            Fact(
                f"native bodies deliver as much as any other form at {most}, or more",
                found["generated"][most] >= others,
            ),
        ),
        chart(_series(found), "bytes", "MB/s", log_x=True),
    )


@experiment("echo-costs")
def table_1(size: Size) -> Experiment:
    """Of unlike machines: what a receiver reads is of the other byte order."""
    label = "1 KB" if size.quick else LARGEST
    record, rounds = record_of(label), _rounds(size)
    wire, write_swapped = swapped(Record)
    rows = []
    shares = {}
    with opposite() as end:
        totals = {name: round_trip(end, name, record, rounds) for name in FORMS}
    for name, form in FORMS.items():
        total = totals[name]
        encode = cost(form.write, record, rounds)
        body = form.write(record)
        if name in {"generated", "interpreted"}:
            make = codec.decoder if name == "generated" else interpreted_decoder
            decode = cost(make(wire, Record), write_swapped(record), rounds)
        else:
            decode = cost(form.read, body, rounds)
        parts = [codec.encoder(Record).encode_parts, form.write][name not in {"generated", "interpreted"}]
        scattered = cost(parts, record, rounds)
        shares[name] = scattered / total
        costs = (f"{scattered:.1f}", f"{encode:.1f}", f"{decode:.1f}")
        rows.append((name, f"{total:.0f}", *costs, f"{shares[name]:.1%}"))
    return Experiment(
        "echo-costs",
        f"ECho, Table 1: the parts of a round trip of {label}",
        "In µs: a round trip; writing a record as parts that a socket takes as they lie; writing it into one "
        "buffer; reading one of the other byte order, where the form has one; the share of writing in parts.",
        ("form", "round trip", "write, in parts", "write, joined", "read", "share of writing"),
        tuple(rows),
        (
            Fact(
                f"writing a native body takes {shares['generated']:.1%} of a round trip; at most 1 %",
                shares["generated"] <= 0.01,
            ),
        ),
    )


@experiment("echo-generated")
def figure_6(size: Size) -> Experiment:
    rows = []
    facts = []
    rounds = _rounds(size)
    wire, write = swapped(Record)
    for label in _sizes(size):
        record = record_of(label)
        like, unlike = FORMS["generated"].write(record), write(record)
        generated = cost(codec.decoder(wire, Record), unlike, rounds)
        interpreted = cost(interpreted_decoder(wire, Record), unlike, rounds)
        fixed = cost(_read_fixed, _write_fixed(record), rounds)
        copied = cost(_copy, like, rounds)
        rows.append((label, *(f"{v:.2f}" for v in (generated, interpreted, fixed, copied))))
        ratio = interpreted / generated
        facts.append(Fact(f"{label}: interpreted takes {ratio:.1f} times as long; at least 4", ratio >= 4))
    return Experiment(
        "echo-generated",
        "ECho, Figure 6: generated against interpreted, between unlike machines",
        "Reading a record of the other byte order, in µs; a fixed wire, which is swapped, too; and a copy of "
        "the body.",
        ("size", "generated", "interpreted", "fixed wire", "copy"),
        tuple(rows),
        tuple(facts),
    )


@experiment("echo-views")
def table_2(size: Size) -> Experiment:
    rows = []
    rounds = _rounds(size)
    costs = {}
    for label in _sizes(size):
        record = record_of(label)
        body = FORMS["generated"].write(record)
        send = cost(codec.encoder(Record).encode_parts, record, rounds)
        costs[label] = cost(FORMS["generated"].read, body, rounds), cost(_copy, body, rounds)
        rows.append((label, *(f"{v:.2f}" for v in (send, *costs[label]))))
    most = max(_sizes(size), key=SIZES.__getitem__)
    read, copied = costs[most]
    return Experiment(
        "echo-views",
        "ECho, Table 2: sending and receiving between like machines",
        "In µs: writing a record as parts, reading it as a view of what came, and copying its body once.",
        ("size", "write", "read", "copy"),
        tuple(rows),
        (Fact(f"{most}: reading takes {read:.2f} µs, a copy {copied:.2f} µs; no more", read <= copied),),
    )


@experiment("echo-unexpected")
def figures_7_and_8(size: Size) -> Experiment:
    rounds = _rounds(size)
    rows = []
    facts = []
    labels = _sizes(size)
    for label in labels:
        record = record_of(label)
        number, values = record.number, record.values
        costs = {}
        for name, event in {
            "expected": record,
            "before": Prefixed(0.5, number, values),
            "behind": Appended(number, values, 0.5),
        }.items():
            like = codec.encoder(type(event)).encode(event)
            wire, write = swapped(type(event))
            costs[name] = (
                cost(codec.decoder(format_of(type(event)), Record), like, rounds),
                cost(codec.decoder(wire, Record), write(event), rounds),
            )
        copied = cost(_copy, codec.encoder(Record).encode(record), rounds)
        shown = [costs[name][unlike] for unlike in (0, 1) for name in ("expected", "before", "behind")]
        rows.append((label, *(f"{v:.2f}" for v in shown), f"{copied:.2f}"))
        if label == labels[-1]:
            more = costs["before"][1] / costs["expected"][1] - 1
            copies = costs["before"][0] / copied
            facts = [
                Fact(f"{label}, unlike machines: it costs {more:.0%} more; at most 5 %", more <= 0.05),
                Fact(f"{label}, like machines: at worst {copies:.1f} copies; at most 2", copies <= 2),
            ]
    return Experiment(
        "echo-unexpected",
        "ECho, Figures 7 and 8: a field that the receiver does not expect",
        "Reading a record, in µs, between like and between unlike machines: as expected, with an unexpected "
        "field before all others, and with one behind them; and a copy of the body.",
        ("size", "like", "before", "behind", "unlike", "before", "behind", "copy"),
        tuple(rows),
        tuple(facts),
    )


if __name__ == "__main__":
    other_process(int(sys.argv[1]))
