"""Where a job is that writes into channels: a file that is replaced twice for each batch.

1. `plan(batch)`: which batch comes next, before anything of it is written.
2. Its results are written into channels, each under a run id that is made of the batch.
3. `done(state)`: the batch is behind us.

A job that is killed between 1 and 3 finds its plan and carries it out again exactly: the channels drop what
they have of those runs already. So each result is in its channel once.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from heliograph.errors import TableMismatch
from heliograph.spark.jobs.tables.workplace import locked, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE: Final = "checkpoint.json"


class _State(msgspec.Struct):
    job: str
    """What the job was asked, as far as it must not change."""
    done: Any = None
    planned: Any = None


class Checkpoint:
    """The checkpoint of one job, in a folder of its own."""

    def __init__(self, folder: Path, job: str) -> None:
        self._file = folder / FILE
        self._state = self._read(folder, job)

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, job: str) -> Iterator[Checkpoint]:
        """TableInUse when another job has it, TableMismatch when it is the checkpoint of another one."""
        with locked(folder):
            yield cls(folder, job)

    @property
    def done(self) -> Any:
        """What the last batch left; None before the first."""
        return self._state.done

    @property
    def planned(self) -> Any:
        """A batch that was planned and may have been carried out in part; None: there is none."""
        return self._state.planned

    def plan(self, batch: Any) -> None:
        self._state.planned = batch
        self._write()

    def finish(self, done: Any) -> None:
        self._state.done, self._state.planned = done, None
        self._write()

    def run_id(self, what: str) -> str:
        """The name of a write of the planned batch: the same when it is carried out again, and no other's."""
        plan = msgspec.json.encode([str(self._file.absolute()), self._state.planned, self._state.done])
        return f"{what}.{hashlib.sha256(plan).hexdigest()[:32]}"

    def _write(self) -> None:
        write_whole(self._file, msgspec.json.encode(self._state))

    def _read(self, folder: Path, job: str) -> _State:
        try:
            state = msgspec.json.decode(self._file.read_bytes(), type=_State)
        except FileNotFoundError:
            return _State(job)
        except msgspec.MsgspecError as error:
            raise TableMismatch(str(folder), f"its {FILE} cannot be read: {error}") from None
        if state.job != job:
            raise TableMismatch(str(folder), f"it is the checkpoint of another job: {state.job}")
        return state
