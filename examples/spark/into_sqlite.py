"""foreachBatch into a database, each batch once: totals and the number of the batch in one transaction.

    python examples/spark/into_sqlite.py

Spark repeats a batch whose end it did not note. The database notes it: what was written of a batch and its
number are committed together, so that a batch which comes again is recognised and left out.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's documents use

import heliograph as hg
import heliograph.spark


class Payment(hg.Event, name="bank.payment", key="account"):
    account: int
    cents: int


def write(database: Path, batch: DataFrame, number: int) -> bool:
    """Add a batch to the totals; False when it is there already."""
    totals = batch.groupBy("account").agg(F.sum("cents").alias("cents")).collect()
    with closing(sqlite3.connect(database)) as books, books:
        books.execute("CREATE TABLE IF NOT EXISTS total (account INTEGER PRIMARY KEY, cents INTEGER)")
        books.execute("CREATE TABLE IF NOT EXISTS done (batch INTEGER PRIMARY KEY)")
        if books.execute("SELECT 1 FROM done WHERE batch = ?", (number,)).fetchone():
            return False
        books.executemany(
            "INSERT INTO total VALUES (?, ?) ON CONFLICT DO UPDATE SET cents = cents + excluded.cents",
            [(row.account, row.cents) for row in totals],
        )
        books.execute("INSERT INTO done VALUES (?)", (number,))
    return True


def main(spark: SparkSession, folder: Path) -> list[tuple[int, int]]:
    with hg.Station(folder / "data") as station:
        payments = station.channel("bank.payments", Payment, qos=hg.QoS(durability="persistent"))
        payments.push_many([Payment(n % 3, 100 + n) for n in range(300)])
    database = folder / "books.sqlite"
    options = {"path": str(folder / "data"), "channel": "bank.payments", "startingOffsets": "earliest"}
    stream = spark.readStream.format("heliograph").options(**options, maxEventsPerTrigger="100").load()

    def both_times(batch: DataFrame, number: int) -> None:
        assert write(database, batch, number)
        assert not write(database, batch, number)  # as when Spark was killed before it noted the end

    query = (
        stream.writeStream.foreachBatch(both_times)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with closing(sqlite3.connect(database)) as books:
        return books.execute("SELECT account, cents FROM total ORDER BY account").fetchall()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for account, cents in main(heliograph.spark.session(), Path(place)):
            sys.stdout.write(f"account {account}: {cents / 100:.2f}\n")
