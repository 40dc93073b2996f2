"""`antifreeze dump PID`: what every process of a running program is at, and who waits for whom.

Changes nothing in the program. Exit status: 0 here is the picture; 1 there is one, but without a single Python stack; 2
there is no such process, or usage.
"""

from __future__ import annotations

import argparse
import sys

from antifreeze.cli.terminal import put
from antifreeze.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", metavar="PID", help="the training process, or one of its workers")
    parser.add_argument("--native", action="store_true", help="native functions, too (takes seconds)")
    parser.add_argument("--locals", action="store_true", help="the variables of your innermost function")
    parser.add_argument("--json", action="store_true", help="as facts, for programs")
    parser.add_argument("-v", "--verbose", action="store_true", help="all threads, all frames, idle workers, too")


def execute(arguments: argparse.Namespace) -> int:
    from antifreeze.doctor.facts import Facts
    from antifreeze.probes.processes import look_at_program
    from antifreeze.probes.processes.dump_text import told

    if not arguments.pid.isdecimal():
        raise ConfigError(f"{arguments.pid!r} is not a number of a process", where="PID", try_="antifreeze dump 4242")
    pid = int(arguments.pid)
    pictures = look_at_program(pid, native=arguments.native, keep_values=arguments.locals)
    if arguments.json:
        put(Facts(processes=pictures).to_json(), to=sys.stdout)
    else:
        put("\n".join(told(pictures, asked=pid, is_verbose=arguments.verbose)), to=sys.stdout)
        put(f"\nnext: antifreeze doctor {pictures[0].pid}", to=sys.stdout)
    return int(not any(picture.threads for picture in pictures))
