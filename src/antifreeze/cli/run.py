"""`antifreeze run SCRIPT [args]`: an unmodified script, every loader in it on our engine.

This process becomes `python SCRIPT [args]`, with a directory of ours at the front of PYTHONPATH. So the script's
`__main__`, `sys.argv`, exit status and tracebacks are its own, and the Python processes that it starts get the engine as
well. What happens in them is in `bootstrap/sitecustomize.py`.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from antifreeze.errors import ConfigError
from antifreeze.settings import mode

NAME = "run"
HELP = "run a script, every loader in it on our engine"
BOOTSTRAP = Path(__file__).resolve().parents[1] / "bootstrap"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "antifreeze run SCRIPT [arguments of the script]"
    parser.add_argument("script", metavar="SCRIPT", help="a Python file; all that follows it belongs to the script")


def part_from_script(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part our words from those of the script, which must not reach argparse: it would take -h, -- and the like."""
    if len(words) < 2 or words[0] != NAME or words[1].startswith("-"):
        return list(words), []
    return list(words[:2]), list(words[2:])


def execute(arguments: argparse.Namespace) -> NoReturn:
    mode()  # a bad ANTIFREEZE is said now, not by the script's first import of torch
    check_runnable(Path(arguments.script))
    check_hook_reaches_python()
    become(
        [sys.executable, *interpreter_flags(), arguments.script, *arguments.script_arguments],
        environ=with_hook(os.environ),
    )


def check_runnable(script: Path) -> None:
    """Python would say these in its own words, but only after our exec."""
    another = "antifreeze run path/to/train.py"
    if not script.exists():
        why, try_ = "there is no such file", another
    elif script.is_dir():
        why, try_ = "it is a directory", another
    elif not os.access(script, os.R_OK):
        why, try_ = "this user may not read it", f"chmod +r {script}"
    else:
        return
    raise ConfigError(f"cannot run {script}", where=str(script.absolute()), why=why, try_=try_)


def check_hook_reaches_python() -> None:
    """Refuse to run a script without the engine that its user asked for."""
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise ConfigError(
            "cannot bring the engine into the script",
            where=f"{sys.executable} {' '.join(interpreter_flags())}",
            why="with -I or -E Python ignores PYTHONPATH, with -S it does not run sitecustomize; we need both",
            try_="antifreeze run, or python -m antifreeze run, without these flags",
        )


def interpreter_flags() -> list[str]:
    """The flags that this interpreter was started with (-W, -X, -O, -u …): meant for the script."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    is_unbuffered = getattr(sys.__stdout__, "write_through", False)
    return [*flags, "-u"] if is_unbuffered else flags


def with_hook(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which Python, and every Python started from it, runs our sitecustomize."""
    others = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != str(BOOTSTRAP)]
    return {
        # Workers of a clean stem must hash as the script does, or sets of strings have another order there.
        "PYTHONHASHSEED": str(secrets.randbits(32) or 1),
        **environ,
        "PYTHONPATH": os.pathsep.join([str(BOOTSTRAP), *others]),
    }


def become(command: list[str], *, environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command."""
    if sys.platform == "win32":  # its exec returns to the shell at once and loses the exit status
        sys.exit(subprocess.call(command, env=environ))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environ)
