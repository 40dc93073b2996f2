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
from pathlib import Path
from typing import NoReturn

from antifreeze.errors import ConfigError
from antifreeze.hook import check_hook_reaches_python, interpreter_flags, with_hook
from antifreeze.options import OPTIONS, environment, mode

MODULE = "-m"
STDIN = "-"


FLAGS = tuple(option for option in OPTIONS if option.flag is not None)
WITH_VALUE = {option.flag for option in FLAGS if option.metavar is not None}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "antifreeze run [options] (SCRIPT | -m MODULE) [arguments of the script]"
    for option in FLAGS:
        assert option.flag is not None
        text = option.help.replace("`", "").replace("%", "%%")
        if option.metavar is None:
            means = "0" if option.flag.startswith("--no-") else "1"
            parser.add_argument(option.flag, dest=option.name, action="store_const", const=means, help=text)
        else:
            parser.add_argument(option.flag, dest=option.name, metavar=option.metavar, help=text)
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
    variables = {}
    for option in FLAGS:
        text = getattr(arguments, option.name)
        if text is not None:
            assert option.flag is not None and option.variable is not None
            value = option.values.read(text, where=option.flag)
            # The script may change its directory before it looks.
            variables[option.variable] = str(value.absolute()) if isinstance(value, Path) else text
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
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: it was closed when we were started
        stream.flush()
    os.execve(command[0], command, environ)
