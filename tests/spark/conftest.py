"""One Spark session for all tests that need one: starting it takes longer than most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import heliograph.spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(s3_environment: dict[str, str]) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment.items():  # Spark's workers have the environment that it starts with
            patch.setenv(name, value)
        session = heliograph.spark.session(
            app="heliograph-tests", master="local[2]", config={"spark.sql.shuffle.partitions": 2}
        )
    yield session
    session.stop()
