"""`antifreeze doctor [(SCRIPT | -m MODULE) [args] | MODULE:LOADER | PID]`: the cause of what ails a program.

Without a program: what the machine is like.

Exit status: 0 nothing is wrong, as far as we can see (findings that are only possible do not count); 1 something is: a
finding that is certain or likely, or a program that fails and we cannot say why; 2 usage, or an error of our own.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from antifreeze.cli.run import MODULE
from antifreeze.cli.target import Target, check_alone, target_of
from antifreeze.cli.terminal import progress_on, put, wants_colour, width_of
from antifreeze.codes import NAMES
from antifreeze.doctor.facts import Facts, Source
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.errors import ConfigError
from antifreeze.option_values import SPAN

WITH_VALUE = {"--batches", "--timeout", "--select", "--ignore", "--format", "--save", "--facts"}
BATCHES = 50
TIMEOUT = "60s"
WILL_RUN = "runs {} up to its first batch (its side effects happen); --static only reads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "antifreeze doctor [options] [(SCRIPT | -m MODULE) [arguments of it] | MODULE:LOADER | PID]"
    parser.add_argument(
        "target",
        metavar="SCRIPT | MODULE:LOADER | PID",
        nargs="?",
        help="a Python file, and all that follows it belongs to the script; a loader, or a function that makes one, in a "
        "module; a process that is running. Without: the machine",
    )
    parser.add_argument(MODULE, dest="module", metavar="MODULE", help="a module, as in python -m MODULE; likewise")
    parser.add_argument("--static", action="store_true", help="read the source, run nothing")
    parser.add_argument(
        "--batches", metavar="N", default=str(BATCHES), help=f"per trial, if an epoch takes too long; {BATCHES}"
    )
    parser.add_argument("--timeout", metavar="TIME", default=TIMEOUT, help=f"for all of it: 90s or 5m; {TIMEOUT}")
    parser.add_argument("--select", metavar="CODES", default="", help="these only: AF1,AF204")
    parser.add_argument("--ignore", metavar="CODES", default="", help="not these")
    parser.add_argument("--format", choices=("text", "json", "github"), default="text")
    parser.add_argument("--save", metavar="FILE", help="write all that was learned about the program to FILE, as JSON")
    parser.add_argument("--facts", metavar="FILE", help="examine what --save wrote, here or elsewhere, once more")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="all areas, all evidence, and what the script said"
    )


def execute(arguments: argparse.Namespace) -> int:
    select, ignore = codes_in(arguments.select, "--select"), codes_in(arguments.ignore, "--ignore")
    facts = saved_facts(arguments) if arguments.facts else facts_of(arguments)
    if arguments.save:
        save(facts, Path(arguments.save))
    from antifreeze.doctor.diagnosis import diagnose

    findings = diagnose(facts, select=select, ignore=ignore)
    if report := rendered(facts, findings, arguments):
        put(report, to=sys.stdout)
    return exit_status(facts, findings)


def exit_status(facts: Facts, findings: Sequence[Finding]) -> int:
    from antifreeze.doctor.render.areas import Mark, areas_of

    is_found = any(finding.weight <= Weight.LIKELY for finding in findings)
    return int(is_found or any(area.mark is Mark.BAD for area in areas_of(facts, findings)))


def codes_in(text: str, option: str) -> tuple[str, ...]:
    """Codes, or beginnings of codes, with commas between them."""
    codes = tuple(word.strip().upper() for word in text.split(",") if word.strip())
    for code in codes:
        if not any(known.startswith(code) for known in NAMES):
            raise ConfigError(f"there is no code {code}", where=option, try_="antifreeze explain --all")
    return codes


# --- what is known about the target


def facts_of(arguments: argparse.Namespace) -> Facts:
    from antifreeze.probes.surroundings import look_at_machine

    if arguments.target is None and arguments.module is None:
        return Facts(machine=look_at_machine())
    if arguments.target is not None and arguments.target.isdecimal():
        from antifreeze.probes.processes import look_at_program

        return Facts(machine=look_at_machine(), processes=look_at_program(int(arguments.target)))
    target = target_of(arguments.target, arguments.module)
    check_alone(target.command, os.environ)
    if not arguments.static:
        return dataclasses.replace(examined(target, arguments), machine=look_at_machine(), source=read(target))
    if target.file is None:
        raise ConfigError(
            f"cannot find {target.name}",
            where=str(Path.cwd()),
            try_="antifreeze doctor from the directory that the module is in, or without --static",
        )
    announce(f"reads {target.name} and runs nothing", arguments)
    return Facts(machine=look_at_machine(), source=read(target))


def examined(target: Target, arguments: argparse.Namespace) -> Facts:
    """What running it tells."""
    from antifreeze.probes.trials.examination import ExaminationOptions, examine

    options = ExaminationOptions(
        batches=positive(arguments.batches, "--batches"), timeout_s=SPAN.read(arguments.timeout, where="--timeout")
    )
    announce(WILL_RUN.format(target.name), arguments)
    with progress_on(sys.stderr) as progress:
        return examine([*target.command, *arguments.script_arguments], options=options, progress=progress.show)


def read(target: Target) -> Source | None:
    from antifreeze.probes.source import read_source

    if target.file is None:
        return None
    return dataclasses.replace(read_source(target.file, base=target.base), script=str(target.file))


def announce(text: str, arguments: argparse.Namespace) -> None:
    """The first line, said before anything happens; programs that read the rest must not stumble over it."""
    put(text, to=sys.stdout if arguments.format == "text" else sys.stderr)


def positive(text: str, option: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise ConfigError(f"{option} {text} cannot work", why="it is a number of batches", try_=f"{option} {BATCHES}")


def saved_facts(arguments: argparse.Namespace) -> Facts:
    if arguments.target or arguments.module:
        raise ConfigError(
            f"--facts {arguments.facts} and {arguments.target or arguments.module} are two programs",
            try_="antifreeze doctor --facts FILE",
        )
    try:
        return Facts.from_json(Path(arguments.facts).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, AttributeError) as error:  # of a file that --save did not write
        raise ConfigError(
            f"cannot read facts from {arguments.facts}", why=str(error), try_="antifreeze doctor --save FILE train.py"
        ) from error


def save(facts: Facts, file: Path) -> None:
    try:
        file.write_text(facts.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {file}", where="--save", why=str(error)) from error


# --- what is said about it


def rendered(facts: Facts, findings: Sequence[Finding], arguments: argparse.Namespace) -> str:
    if arguments.format == "json":
        from antifreeze.doctor.render.as_json import as_json

        return as_json(facts, findings)
    if arguments.format == "github":
        from antifreeze.doctor.render.github import as_github

        return as_github(facts, findings)
    from antifreeze.doctor.render.text import Look, as_text

    look = Look(is_coloured=wants_colour(sys.stdout), is_verbose=arguments.verbose, width=width_of(sys.stdout))
    return as_text(facts, findings, look=look)
