"""This package as a zip, for Spark's workers on machines where it is not installed.

    package("heliograph.zip")                     # then: spark-submit --py-files heliograph.zip

With it goes the module by which Spark finds `format("heliograph")` without being told.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import heliograph
from heliograph.errors import NotPossible

if TYPE_CHECKING:
    import os

FINDER: Final = "pyspark_heliograph.py"
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)
"""So that the same files make the same zip."""


def package(out: str | os.PathLike[str]) -> int:
    """Write the zip, over one that is there; returns how many files are in it.

    NotPossible when this package is in a zip itself.
    """
    folder = Path(heliograph.__file__).parent
    if not folder.is_dir():
        raise NotPossible("package", f"heliograph is imported from {folder}, which is no folder")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files += [path for path in (folder.parent / FINDER,) if path.is_file()]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            info = zipfile.ZipInfo(path.relative_to(folder.parent).as_posix(), _LONG_AGO)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    return len(files)
