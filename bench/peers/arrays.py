"""Arrays of floats: what they cost must not grow with their size, because nobody copies them."""

from __future__ import annotations

import pickle
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - the event class reads its annotations

import heliograph as hg
from bench.harness import Benchmark, Case, Fact, Size, Target, benchmark
from heliograph import codec
from heliograph.model.event import format_of

SMALL, LARGE = 128, 12_800
"""Doubles in 1 KB and in 100 KB."""


class Scan(hg.Event, name="radar.scan"):
    id: int
    samples: Annotated[NDArray[np.float64], hg.Shape(None)]


class NativeScan(hg.Event, name="radar.scan", body="native"):
    id: int
    samples: Annotated[NDArray[np.float64], hg.Shape(None)]


KINDS: tuple[tuple[str, type[Scan] | type[NativeScan]], ...] = (("packed", Scan), ("native", NativeScan))


def _samples(n: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=n)


@benchmark("arrays-decode", "Reading an array of floats of 1 KB and of 100 KB")
def decode(size: Size) -> Benchmark:
    cases = []
    targets = []
    for kind, cls in KINDS:
        read = codec.decoder(format_of(cls), cls)
        for label, n in (("1 KB", SMALL), ("100 KB", LARGE)):
            body = codec.encoder(cls).encode(cls(1, _samples(n, size.seed)))
            cases.append(Case(f"{kind} {label}", read, ((body,),)))
        targets.append(
            Target(f"{kind}: 100 KB against 1 KB", f"{kind} 100 KB", "at most", 1.5, f"{kind} 1 KB")
        )
    raw = _samples(LARGE, size.seed).tobytes()
    cases += [
        Case("numpy.frombuffer 100 KB", np.frombuffer, ((raw,),), "raw limit: no record around it"),
        Case("pickle 100 KB", pickle.loads, ((pickle.dumps((1, _samples(LARGE, size.seed)), 5),),)),
        Case(
            "msgspec list 100 KB",
            msgspec.msgpack.Decoder(tuple[int, list[float]]).decode,
            ((msgspec.msgpack.encode((1, _samples(LARGE, size.seed).tolist())),),),
        ),
    ]
    return Benchmark(tuple(cases), "packed 1 KB", tuple(targets))


@benchmark("arrays-encode", "Writing an array of floats of 1 KB and of 100 KB")
def encode(size: Size) -> Benchmark:
    cases = []
    targets = []
    facts = []
    for kind, cls in KINDS:
        write = codec.encoder(cls).encode_parts
        for label, n in (("1 KB", SMALL), ("100 KB", LARGE)):
            cases.append(Case(f"{kind} {label}", write, ((cls(1, _samples(n, size.seed)),),), "parts"))
        large = cls(1, _samples(LARGE, size.seed))
        facts.append(
            Fact(f"{kind}: a part is the array's own memory", _is_shared(large.samples, write(large)))
        )
        targets.append(
            Target(f"{kind}: 100 KB against 1 KB", f"{kind} 100 KB", "at most", 1.5, f"{kind} 1 KB")
        )
        cases.append(
            Case(f"{kind} 100 KB joined", codec.encoder(cls).encode, ((large,),), "one buffer: a copy")
        )
    samples = _samples(LARGE, size.seed)
    cases += [
        Case("numpy.tobytes 100 KB", samples.tobytes, ((),), "one copy, no record around it"),
        Case("pickle 100 KB", lambda record: pickle.dumps(record, 5), (((1, samples),),)),
        Case("msgspec list 100 KB", msgspec.msgpack.Encoder().encode, (((1, samples.tolist()),),)),
    ]
    return Benchmark(tuple(cases), "packed 1 KB", tuple(targets), tuple(facts))


def _is_shared(array: NDArray[np.float64], parts: list[Any]) -> bool:
    return any(
        isinstance(part, memoryview) and np.shares_memory(array, np.frombuffer(part, np.uint8))
        for part in parts
    )
