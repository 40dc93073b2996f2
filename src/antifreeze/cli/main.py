"""The command `antifreeze`: finds the command that is meant and runs it.

A command is a module of this package, loaded only if it is the one: with `add_arguments(parser)`, `execute(arguments) ->
exit status` and, if it takes a script, `WITH_VALUE`, its options that are followed by a value. An `AntifreezeError` that it
raises is printed and ends with status 2, as does a fault of our own.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Collection, Sequence

import antifreeze
from antifreeze.errors import AntifreezeError

COMMANDS = {
    "run": "run a script, every loader in it on our engine",
    "doctor": "name the cause of a script, or a process, that hangs, fails or crawls while it loads",
    "explain": "tell what a code means: symptom, cause, evidence, fix",
    "dump": "show what a running program and its workers are at: stacks, waits, who waits for whom",
    "demo": "see it work: no data, no GPU, under a minute",
}
MODULE = "-m"
# What a shell gives for a program that such a signal ended.
ENDED_BY_INTERRUPT = 130
ENDED_BY_PIPE = 141

START_HERE = """\
start here:
  antifreeze run train.py --epochs 3       your script as it is, every loader in it on our engine
  antifreeze run -m package.train          the same for a module
  antifreeze run --retry 2 train.py        samples that fail are tried again first; more: antifreeze run --help
  antifreeze doctor train.py               why it hangs, fails or crawls: the cause, the line, the fix
  antifreeze dump 4242                     a program that is frozen now: what each of its processes is at
  antifreeze explain AF101                 what a code means; all of them: antifreeze explain --all
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
    own = list(sys.argv[1:] if words is None else words)
    of_script: list[str] = []
    name = own[0] if own[:1] and own[0] in COMMANDS else None
    command = importlib.import_module(f"antifreeze.cli.{name}") if name else None
    if command is not None and hasattr(command, "WITH_VALUE"):
        own, of_script = part_from_script(own, with_value=command.WITH_VALUE)
    parser, parts = _parsers()
    if command is None:
        parser.parse_args(own)
        parser.print_help()
        return 0
    command.add_arguments(parts[own[0]])
    arguments = parser.parse_args(own)
    try:
        status: int = command.execute(argparse.Namespace(**vars(arguments), script_arguments=of_script))
    except AntifreezeError as error:
        print(f"antifreeze: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return ENDED_BY_INTERRUPT
    except BrokenPipeError:  # as of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        return ENDED_BY_PIPE
    except Exception:  # whatever it is, it is a fault of ours, and not something found
        import traceback

        traceback.print_exc()
        print("antifreeze: this is a fault of antifreeze; please report it with the lines above", file=sys.stderr)
        return 2
    return status


def part_from_script(words: Sequence[str], *, with_value: Collection[str]) -> tuple[list[str], list[str]]:
    """Part our words, the command first, from those of the script: argparse would take its -h, -- and the like."""
    last = 1
    # A single "-" is a script: standard input.
    while last < len(words) and words[last][:1] == "-" != words[last] and not words[last].startswith(MODULE):
        last += 2 if words[last] in with_value else 1
    if words[last : last + 1] == [MODULE]:  # and its name is the next word
        last += 1
    return list(words[: last + 1]), list(words[last + 1 :])


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser, and those of its commands."""
    parser = argparse.ArgumentParser(
        prog="antifreeze",
        description="A drop-in for PyTorch's DataLoader, for training that freezes or dies with num_workers > 0.",
        epilog=START_HERE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"antifreeze {antifreeze.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    return parser, {
        name: commands.add_parser(name, help=line, description=line, allow_abbrev=False)
        for name, line in COMMANDS.items()
    }
