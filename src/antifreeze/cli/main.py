"""The command `antifreeze`: finds the command that is meant and runs it.

A command is a module with a `NAME`, a `HELP` line, `add_arguments(parser)` and `execute(arguments) -> exit status`.
An `AntifreezeError` that it raises is printed and ends with status 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import antifreeze
from antifreeze.cli import demo, dump, run
from antifreeze.errors import AntifreezeError

COMMANDS = (run, dump, demo)

START_HERE = """\
start here:
  antifreeze run train.py --epochs 3       your script as it is, every loader in it on our engine
  antifreeze run -m package.train          the same for a module
  antifreeze run --retry 2 train.py        samples that fail are tried again first; more: antifreeze run --help
  antifreeze dump 4242                     a program that is frozen now: what each of its processes is at
  antifreeze demo                          see it work: no data, no GPU, under a minute
  python -m antifreeze run train.py        the same where `antifreeze` is not on PATH

in code:
  from antifreeze import DataLoader        torch's signature
  import antifreeze; antifreeze.install()  every loader of this process

environment:
  ANTIFREEZE=0                             everything off: torch's own loader
  ANTIFREEZE=require                       an error where torch's own loader would have to step in
"""


def main(words: Sequence[str] | None = None) -> int:
    """Carry out a command line and return the exit status."""
    own, of_script = run.part_from_script(sys.argv[1:] if words is None else words)
    parser = _parser()
    arguments = parser.parse_args(own)
    if arguments.execute is None:
        parser.print_help()
        return 0
    try:
        status: int = arguments.execute(argparse.Namespace(**vars(arguments), script_arguments=of_script))
    except AntifreezeError as error:
        print(f"antifreeze: {error}", file=sys.stderr)
        return 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="antifreeze",
        description="A drop-in for PyTorch's DataLoader, for training that freezes or dies with num_workers > 0.",
        epilog=START_HERE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"antifreeze {antifreeze.__version__}")
    parser.set_defaults(execute=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS:
        of_command = commands.add_parser(command.NAME, help=command.HELP, description=command.HELP, allow_abbrev=False)
        command.add_arguments(of_command)
        of_command.set_defaults(execute=command.execute)
    return parser
