"""How our `sitecustomize` gets into a Python program, and into every Python that is started from it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from antifreeze.errors import ConfigError

BOOTSTRAP = Path(__file__).resolve().parent / "bootstrap"


def check_hook_reaches_python() -> None:
    """Refuse to run a script without what its user asked for."""
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise ConfigError(
            "cannot get into the script",
            where=f"{sys.executable} {' '.join(interpreter_flags())}",
            why="with -I or -E Python ignores PYTHONPATH, with -S it does not run sitecustomize; we need both",
            try_="antifreeze, or python -m antifreeze, without these flags",
        )


def interpreter_flags() -> list[str]:
    """The flags that this interpreter was started with (-W, -X, -O, -u …): meant for the script."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    is_unbuffered = getattr(sys.__stdout__, "write_through", False)
    return [*flags, "-u"] if is_unbuffered else flags


def with_hook(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which Python, and every Python started from it, runs our sitecustomize."""
    given = environ.get("PYTHONPATH")
    # An empty entry is the current directory: `PYTHONPATH=$PYTHONPATH:lib` makes one, and programs have come to need it.
    others = [entry for entry in given.split(os.pathsep) if entry != str(BOOTSTRAP)] if given else []
    return {**environ, "PYTHONPATH": os.pathsep.join([str(BOOTSTRAP), *others])}
