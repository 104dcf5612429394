"""Features for machine learning: windows over a channel, and a model that is trained on the older part.

    python examples/spark/features.py

The features of an event come from events before it only, and the split is by time: what a model is tested on
lies behind all that it has seen.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's documents use

import heliograph as hg
import heliograph.spark


class Power(hg.Event, name="plant.power", key="unit"):
    unit: int
    minute: int
    kilowatts: float


def push(folder: Path) -> None:
    """Two units whose power at a minute follows from the two minutes before."""
    with hg.Station(folder) as station:
        power = station.channel("plant.power", Power, qos=hg.QoS(durability="persistent"))
        for unit in (1, 2):
            last, before = 100.0 * unit, 90.0 * unit
            for minute in range(200):
                last, before = 0.6 * last + 0.3 * before + (minute % 7), last
                power.push(Power(unit, minute, last))


def main(spark: SparkSession, folder: Path) -> tuple[int, int, list[float], float]:
    push(folder / "data")
    of_unit = Window.partitionBy("unit").orderBy("minute")
    features = (
        heliograph.spark.read(spark, folder / "data", "plant.power")
        .withColumn("last", F.lag("kilowatts", 1).over(of_unit))
        .withColumn("before", F.lag("kilowatts", 2).over(of_unit))
        .withColumn("phase", (F.col("minute") % 7).cast("double"))
        .dropna()
    )
    table: Any = features.select("minute", "last", "before", "phase", "kilowatts").toPandas()
    train, test = table[table["minute"] < 150], table[table["minute"] >= 150]
    columns = ["last", "before", "phase"]
    weights, *_ = np.linalg.lstsq(train[columns].to_numpy(), train["kilowatts"].to_numpy(), rcond=None)
    errors = np.abs(test[columns].to_numpy() @ weights - test["kilowatts"].to_numpy())
    return len(train), len(test), [round(float(weight), 6) for weight in weights], float(errors.max())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        trained, tested, found, worst = main(heliograph.spark.session(), Path(place))
        sys.stdout.write(
            f"trained on {trained} events, tested on {tested}: weights {found}, error {worst:.1e}\n"
        )
