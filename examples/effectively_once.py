"""Effectively once: a consumer that commits its output and its place together, and is killed again and again.

    python examples/effectively_once.py              # killed five times
    python examples/effectively_once.py --kills 500

Payments flow through a persistent channel. Another process adds them up in SQLite. It does not leave its
place to Heliograph: in one transaction it writes the new balance and the offset behind the payment, and when
it is started again it reads on from the offset that it finds there. Whenever it is killed, either both were
written or neither was, so every payment is in the balances exactly once, which is checked at the end.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import heliograph as hg

PERSISTENT = hg.QoS(durability="persistent")
ACCOUNTS = 7
LIMIT = 60.0


class Payment(hg.Event, name="bank.payment", key="account"):
    account: int
    cents: int


def add_up(database: str) -> None:
    """The consumer: until its standard input ends, or it is killed."""
    books = sqlite3.connect(database, isolation_level=None)
    books.execute("PRAGMA journal_mode = WAL")
    books.execute("PRAGMA synchronous = NORMAL")  # enough for a kill; a loss of power would want FULL
    books.execute(
        "CREATE TABLE IF NOT EXISTS balance (account INTEGER PRIMARY KEY, cents INTEGER, payments INTEGER)"
    )
    books.execute("CREATE TABLE IF NOT EXISTS place (id INTEGER PRIMARY KEY CHECK (id = 1), next INTEGER)")
    books.execute("INSERT OR IGNORE INTO place VALUES (1, 0)")
    (start,) = books.execute("SELECT next FROM place").fetchone()
    with hg.Station(domain="effectively-once") as station:
        payments = station.channel("bank.payments", Payment, qos=PERSISTENT)
        with payments.consumer(start=start) as consumer:
            print("ready", flush=True)
            for delivery in consumer.deliveries():
                payment, offset = delivery.event, delivery.header.offset
                assert offset is not None
                books.execute("BEGIN IMMEDIATE")
                books.execute("INSERT OR IGNORE INTO balance VALUES (?, 0, 0)", (payment.account,))
                books.execute(
                    "UPDATE balance SET cents = cents + ?, payments = payments + 1 WHERE account = ?",
                    (payment.cents, payment.account),
                )
                books.execute("UPDATE place SET next = ?", (offset + 1,))
                books.execute("COMMIT")


def killed_after(seconds: float, database: str) -> None:
    """Run the consumer, and kill it so many seconds after it has begun."""
    child = subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, __file__, "--consume", database], stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        threading.Event().wait(seconds)
        child.kill()


def caught_up(database: str, payments: int) -> bool:
    with sqlite3.connect(database) as books:
        (done,) = books.execute("SELECT coalesce(sum(payments), 0) FROM balance").fetchone()
    books.close()
    return bool(done >= payments)


def run(folder: Path, kills: int) -> int:
    database, chance = str(folder / "books.db"), random.Random(7)  # noqa: S311 - repeatable by intent
    expected: dict[int, tuple[int, int]] = {}
    pushed = 0
    with hg.Station(folder / "data", domain="effectively-once") as station:
        payments = station.channel("bank.payments", Payment, qos=PERSISTENT)
        for _ in range(kills):
            batch = [Payment(chance.randrange(ACCOUNTS), chance.randrange(-999, 1000)) for _ in range(100)]
            payments.push_many(batch)
            pushed += len(batch)
            for payment in batch:
                cents, times = expected.get(payment.account, (0, 0))
                expected[payment.account] = (cents + payment.cents, times + 1)
            killed_after(chance.random() * 0.03, database)
        seconds = 0.1
        while not caught_up(database, pushed):
            killed_after(seconds, database)  # the last life ends like all others
            seconds = min(LIMIT, 2 * seconds)
    with sqlite3.connect(database) as books:
        found = {account: (cents, times) for account, cents, times in books.execute("SELECT * FROM balance")}
    books.close()
    print(f"{pushed} payments, killed {kills} times, {sum(times for _, times in found.values())} counted")
    print("exact" if found == expected else f"WRONG: {found} in place of {expected}")
    return 0 if found == expected else 1


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--kills", type=int, default=5)
    options.add_argument("--consume")
    chosen = options.parse_args()
    if chosen.consume:
        add_up(chosen.consume)
        return 0
    with tempfile.TemporaryDirectory() as name:
        meeting = Path(name) / "run"
        meeting.mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(meeting)  # a domain of this run's own
        return run(Path(name), chosen.kills)


if __name__ == "__main__":
    sys.exit(main())
