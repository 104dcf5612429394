"""Object stores: put once, ranges, listings; the same in a folder and in a server that speaks S3."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import DiskError, NoSuchFile, NotPossible
from heliograph.runtime.object_store import is_remote, object_store

if TYPE_CHECKING:
    from pathlib import Path

    from heliograph.runtime.object_store import ObjectStore


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return object_store(tmp_path / "store")
    return object_store(f"{request.getfixturevalue('s3')}/{tmp_path.name}")


def test_an_object_is_put_once_and_read_in_ranges(store: ObjectStore) -> None:
    assert store.put_if_absent("a/b/1", b"0123456789")
    assert not store.put_if_absent("a/b/1", b"other")
    assert store.get("a/b/1") == b"0123456789"
    assert store.get("a/b/1", 2, 5) == b"234"
    assert store.put_if_absent("a/b/2", memoryview(b"xyz"))
    assert store.list("a/b/") == ["a/b/1", "a/b/2"]
    assert store.list("a/b/", "a/b/1") == ["a/b/2"]
    assert store.list("c/") == []
    store.remove(["a/b/1", "a/b/none"])
    assert store.list("a/b/") == ["a/b/2"]
    with pytest.raises(NoSuchFile):
        store.get("a/b/1")


def test_of_many_that_put_one_name_at_the_same_time_one_succeeds(tmp_path: Path) -> None:
    store = object_store(tmp_path)

    def put(who: int) -> bool:
        return store.put_if_absent("same", bytes([who]) * 100_000)

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(put, range(8)))
    assert sum(won) == 1
    assert store.get("same") == bytes([won.index(True)]) * 100_000


def test_a_server_that_is_not_there_is_an_error_that_may_be_retried(
    s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("heliograph.runtime.object_store.RETRY_SECONDS", 0.1)
    with pytest.raises(DiskError) as caught:
        object_store(s3).list("a/")
    assert caught.value.retriable


@pytest.mark.parametrize(
    ("location", "remote"),
    [("s3://b/p", True), ("gs://b", True), ("data", False), ("/data", False), ("file:///data", False)],
)
def test_urls_of_buckets_are_told_from_folders(location: str, remote: bool) -> None:
    assert is_remote(location) is remote


def test_a_url_of_another_kind_is_refused_with_those_that_are_possible() -> None:
    with pytest.raises(NotPossible, match=r"hdfs://a/b: there are stores at s3://"):
        is_remote("hdfs://a/b")
