"""Plays, in processes of their own, those through whom a batch goes from Spark into a channel.

    python sink_player.py station FOLDER               keeps the channel, until it is killed
    python sink_player.py driver FOLDER BATCHES        what Spark's driver does, to its end

The driver follows Spark's protocol: it runs the tasks of a batch, each in a process of its own and again when
it dies, commits in yet another process, and writes down that the batch is committed. Started again it repeats
the first batch that was not. What is written in the tasks and at the commit is the sink's own code; only Java
is missing, which makes hundreds of runs affordable.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec

import heliograph as hg
from heliograph.codec import encoder
from heliograph.journal.inbox.staging import (
    StagedBatch,
    StagedFile,
    StageWriter,
    hand_over,
    key_of,
    make_inbox,
)
from heliograph.journal.station_folder import wait_until_taken_in
from heliograph.model.event import format_of
from heliograph.runtime.ports import system_ports

CHANNEL, WRITER, NONCE = "totals", "w", "checkpoint-1"
TASKS, ROWS = 3, 4


class Total(hg.Event, name="air.total", key="id"):
    id: int


def station(folder: Path) -> None:
    with hg.Station(folder) as opened:
        opened.channel(CHANNEL, Total, qos=hg.QoS(durability="persistent"))
        print("here", flush=True)
        time.sleep(600)


def driver(folder: Path, batches: int) -> None:
    log = folder.with_name("checkpoint")
    log.mkdir(exist_ok=True)
    disk = system_ports(folder).disk
    assert disk is not None
    make_inbox(disk)
    for number in range(batches):
        committed = log / f"{number}.committed"
        if committed.exists():
            continue
        files = [_task(folder, number, task) for task in range(TASKS)]
        answer = _in_child(lambda files=files, number=number: _commit(folder, number, files))
        if answer is None:
            sys.exit("the process that commits has died, and with it the query")
        committed.touch()


def _task(folder: Path, number: int, task: int) -> StagedFile:
    """Spark gives a task four attempts."""
    for attempt in range(4):
        answer = _in_child(lambda attempt=attempt: _staged(folder, number, task, attempt))
        if answer is not None:
            return msgspec.msgpack.decode(answer, type=StagedFile)
    sys.exit("a task has died four times")


def _staged(folder: Path, number: int, task: int, attempt: int) -> bytes:
    key = key_of(CHANNEL, WRITER, NONCE)
    first = (number * TASKS + task) * ROWS
    with StageWriter(system_ports(folder), key, number, f"p{task}-a{attempt}") as stage:
        stage.add(format_of(Total), [encoder(Total).encode(Total(n)) for n in range(first, first + ROWS)])
        return msgspec.msgpack.encode(stage.finish())


def _commit(folder: Path, number: int, files: list[StagedFile]) -> bytes:
    ports = system_ports(folder)
    batch = StagedBatch(
        channel=CHANNEL, writer=WRITER, nonce=NONCE, number=number, files=tuple(files), creates=True
    )
    hand_over(ports, batch)
    wait_until_taken_in(ports, batch, timeout=60.0)
    return b"done"


def _in_child(work: object) -> bytes | None:
    """What a forked process answers; None when it died before."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, work())  # type: ignore[operator]  # a lambda above
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer or None


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["station", folder]:
            station(Path(folder))
        case ["driver", folder, batches]:
            driver(Path(folder), int(batches))
