"""`helio spark`: what Spark needs of Heliograph on other machines.

helio spark package heliograph.zip        this package as a zip, for the workers of a cluster
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer looks at the annotation
from typing import Annotated

import typer

from heliograph.cli.output import JsonFlag, print_json, print_line, show_help_without_command

app = typer.Typer(help="Make the zip of this package that the workers of a Spark cluster need.")


@app.callback(invoke_without_command=True)
def _spark(context: typer.Context) -> None:
    show_help_without_command(context)


@app.command()
def package(
    out: Annotated[Path, typer.Argument(help="The zip to write.", show_default=False)],
    *,
    as_json: JsonFlag = False,
) -> None:
    """Write this package as a zip, to be shipped to workers; what it stands on has to be installed there."""
    from heliograph.spark.session.package import package as write  # noqa: PLC0415 - commands import what they need when they run

    files = write(out)
    size = out.stat().st_size
    if as_json:
        print_json({"path": str(out), "files": files, "bytes": size})
        return
    print_line(f"{out}  {files} files, {size} bytes")
    print_line(f"ship it: spark-submit --py-files {out} job.py")
    print_line("workers need: pip install msgspec numpy pyarrow crc32c")
