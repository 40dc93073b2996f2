"""`antifreeze run [options] SCRIPT [args]`: an unmodified script, every loader in it on our engine.

This process becomes `python SCRIPT [args]`, or `python -m MODULE [args]`, with a directory of ours at the front of
PYTHONPATH. So the script's `__main__`, `sys.argv`, exit status and tracebacks are its own, and the Python processes that it
starts get the engine as well. What happens in them is in `bootstrap/sitecustomize.py`. The options of `run` are environment
variables to them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from antifreeze.errors import ConfigError
from antifreeze.hook import check_hook_reaches_python, interpreter_flags, with_hook
from antifreeze.settings import environment, mode, read_variable

MODULE = "-m"
STDIN = "-"


@dataclass(frozen=True, slots=True)
class Flag:
    """An option of `run`, and the variable that says the same to the script's loaders."""

    name: str
    variable: str
    help: str
    metavar: str | None = None
    """What stands for its value in the help; None: it has none."""
    means: str = "1"
    """What it means to the variable, if it has no value of its own."""

    @property
    def attribute(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")


FLAGS = (
    Flag("--on-error", "ANTIFREEZE_ON_ERROR", "what becomes of a sample that fails: raise, skip or replace", "WHAT"),
    Flag("--retry", "ANTIFREEZE_RETRY", "fetch a sample that fails again, up to N times, before that", "N"),
    Flag(
        "--max-lost", "ANTIFREEZE_MAX_LOST", "samples of an epoch that may be skipped or replaced: 20 or 1%%", "LIMIT"
    ),
    Flag("--stall-after", "ANTIFREEZE_STALL_AFTER", "call a blocked sample stuck after this time: 10s or 2m", "TIME"),
    Flag(
        "--sample-timeout",
        "ANTIFREEZE_SAMPLE_TIMEOUT",
        "give up a sample at which workers have been blocked for this time: 60s or 5m",
        "TIME",
    ),
    Flag("--no-hedge", "ANTIFREEZE_HEDGE", "no second worker for what another one is stuck at", means="0"),
    Flag("--no-replay", "ANTIFREEZE_REPLAY", "iterable datasets give other items when they are read again", means="0"),
    Flag("--fix", "ANTIFREEZE_FIX", "put right what torch gets silently wrong: any of rng,shard,stale", "WHAT"),
    Flag("--ledger", "ANTIFREEZE_LEDGER", "write all that deviates from a calm run to FILE, as JSON lines", "FILE"),
    Flag("--stats", "ANTIFREEZE_STATS", "print where the time went when the script ends"),
)
WITH_VALUE = {flag.name for flag in FLAGS if flag.metavar is not None}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "antifreeze run [options] (SCRIPT | -m MODULE) [arguments of the script]"
    for flag in FLAGS:
        if flag.metavar is None:
            parser.add_argument(flag.name, action="store_const", const=flag.means, help=flag.help)
        else:
            parser.add_argument(flag.name, metavar=flag.metavar, help=flag.help)
    program = parser.add_mutually_exclusive_group(required=True)
    program.add_argument(
        "script", metavar="SCRIPT", nargs="?", help="a Python file; all that follows it belongs to the script"
    )
    program.add_argument(MODULE, dest="module", metavar="MODULE", help="a module, as in python -m MODULE; likewise")


def execute(arguments: argparse.Namespace) -> NoReturn:
    mode()  # a bad ANTIFREEZE is said now, not by the script's first import of torch
    environ = {**os.environ, **as_variables(arguments)}
    environment(environ)  # likewise
    if arguments.module is None and not is_other_program(arguments.script):
        check_runnable(Path(arguments.script))
    check_hook_reaches_python()
    program = [arguments.script] if arguments.module is None else [MODULE, arguments.module]
    become(
        [sys.executable, *interpreter_flags(), *program, *arguments.script_arguments],
        environ=with_hook(environ),
    )


def as_variables(arguments: argparse.Namespace) -> dict[str, str]:
    """What our options are as environment variables; a value that cannot work is refused."""
    given = {flag: getattr(arguments, flag.attribute) for flag in FLAGS}
    variables = {}
    for flag, text in given.items():
        if text is not None:
            value = read_variable(flag.variable, text, where=flag.name)
            # The script may change its directory before it looks.
            variables[flag.variable] = str(value.absolute()) if isinstance(value, Path) else text
    return variables


def is_other_program(script: str) -> bool:
    """Whether this is a program to Python without being a file: standard input, or a directory that has a main module."""
    return script == STDIN or any(Path(script).glob("__main__.py*"))


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


def become(command: list[str], *, environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command."""
    if sys.platform == "win32":  # its exec returns to the shell at once and loses the exit status
        sys.exit(subprocess.call(command, env=environ))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environ)
