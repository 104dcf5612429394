"""What a session is set to, by its profile."""

from __future__ import annotations

import pytest

import heliograph.spark
from heliograph.errors import InvalidOption
from heliograph.spark.session.session import GIGABYTE, JAVA_OPTIONS, production_heap, settings_of


def test_a_local_session_is_for_a_laptop_unless_it_is_said_to_be_for_production() -> None:
    laptop = settings_of(None, is_local=True)
    assert laptop == settings_of("laptop", is_local=True)
    assert (laptop["spark.driver.memory"], laptop["spark.ui.enabled"]) == ("1g", False)
    assert "arrow.enable_unsafe_memory_access" in str(laptop[JAVA_OPTIONS])
    production = settings_of("production", is_local=True)
    assert production["spark.ui.enabled"]
    assert production["spark.driver.bindAddress"] == "127.0.0.1"
    assert "arrow." not in str(production.get(JAVA_OPTIONS, ""))
    assert "spark.sql.shuffle.partitions" not in production


def test_a_cluster_is_for_production_and_listens_where_it_says() -> None:
    cluster = settings_of(None, is_local=False)
    assert cluster == settings_of("production", is_local=False)
    assert "spark.driver.bindAddress" not in cluster
    assert cluster["spark.sql.streaming.metricsEnabled"]


@pytest.mark.parametrize(("gigabytes", "heap"), [(1, 2), (8, 2), (16, 4), (64, 16), (512, 16)])
def test_the_heap_of_production_is_a_quarter_of_the_memory(gigabytes: int, heap: int) -> None:
    assert production_heap(gigabytes * GIGABYTE) == heap


def test_a_profile_that_there_is_not_is_refused_before_spark_starts() -> None:
    with pytest.raises(InvalidOption, match="laptop or production"):
        heliograph.spark.session(profile="desktop")  # type: ignore[arg-type]
