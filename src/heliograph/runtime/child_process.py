"""Commands that run a module of ours in another interpreter, which imports nothing from the current folder.

`python -m` puts the folder in which a process is started before all others, so that whoever can write there
(a shared or temporary folder) has its modules run in place of ours. Children are started with a safe path
(`-P`) and are told by name where to import from: where their parent does.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_START: Final = (
    f"import sys; sys.path[:] = sys.argv.pop(1).split({os.pathsep!r}); "
    "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def python_command(module: str, *arguments: str) -> list[str]:
    """Run a module of ours as `python -m` does, with these arguments."""
    return [
        sys.executable,
        "-P",
        "-c",
        _START,
        os.pathsep.join(import_path(for_user=False)),
        module,
        *arguments,
    ]


def import_path(*, for_user: bool) -> list[str]:
    """Where this process imports from, but for the current folder.

    For modules of the user that includes the folder of the program, which Python puts first.
    """
    path = [entry for entry in sys.path if entry and Path(entry).is_absolute()]
    if for_user or sys.flags.safe_path or not path or path[0] != sys.path[0]:
        return path
    # The folder of the program, or with `-m` the one in which it was started: ours are elsewhere, mostly.
    return path if Path(__file__).parents[1] == Path(path[0]) else path[1:]


def import_path_for(module: str) -> list[str]:
    """The same for a process that imports one module of the user, wherever this process finds that.

    A user who names a module of the current folder trusts it: it comes last, in front of nothing.
    """
    path = import_path(for_user=True)
    with suppress(ImportError, ValueError):  # that process says what is wrong with it
        spec = find_spec(module.partition(".")[0])
        found = (
            None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)
        )
        if spec is not None and found is not None:
            place = Path(found).absolute()
            # A package is a folder, and may have no file of its own.
            home = place.parents[1] if spec.submodule_search_locations and spec.origin else place.parent
            if str(home) not in path:
                path.append(str(home))
    return path
