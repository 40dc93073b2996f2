"""Measure antifreeze beside torch and its peers: `make bench`, or `python benchmarks/run.py`.

A round takes one reading of every engine: torch and antifreeze right after each other and in turning order (torch first,
then antifreeze first, …), then the others, each time beginning with the next one, so that whatever else the machine does
hits all of them. Ratios are formed within a round; `judge.py` says how, `reading.py` what is timed and checked, `server.py`
in what process, `engines.py` how each engine is set up.

Exit status 1 if a goal is missed, or if antifreeze or torch failed or delivered wrong batches; peers cannot fail the run.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engines import AGAIN, ENGINES, INLINE, OURS, PEERS, TORCH
from judge import Result, Round, judge, quantity
from measure import ReadingFailed, Server, started
from reading import Reading, Setting
from report import Call, Facts, Mismatch, Report, facts_of_this_machine, merge, read, require_same, write
from workloads import ENOUGH_ROUNDS, PREFETCH_FACTOR, QUIET_LOAD, WORKLOADS, Workload


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an ending that stops what is being measured, too
    facts = facts_of_this_machine(
        workers=options.workers,
        prefetch_factor=PREFETCH_FACTOR,
        is_self_test=options.self_test,
        commit=options.commit,
    )
    old = read_old(options.json, facts)
    chosen = [workload for workload in WORKLOADS if not options.only or workload.name in options.only]
    say_where(facts, options)
    at, load = time.strftime("%Y-%m-%dT%H:%M:%S"), os.getloadavg()[0]
    results: list[Result] = []
    with started() as server:
        for workload in chosen:
            found = measure(server, workload, facts, options)
            results += found
            for result in found:
                print(text_of(result), flush=True)
            if options.json:  # after every workload: a run that is cut short has not been for nothing
                names = tuple(dict.fromkeys(result.workload for result in results))
                call = Call(at, round(load, 2), options.pairs, names)
                write(merge(old, Report(facts, (call,), tuple(results))), options.json)
    return say_how_it_went(results)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [workload.name for workload in WORKLOADS]

    def names_in(text: str, known: Sequence[str]) -> list[str]:
        chosen = text.split(",")
        if unknown := sorted(set(chosen) - set(known)):
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not among {', '.join(known)}")
        return chosen

    parser.add_argument(
        "--only",
        type=lambda text: names_in(text, names),
        action="extend",
        metavar="NAME,…",
        help=f"these workloads: {', '.join(names)}",
    )
    parser.add_argument(
        "--engines",
        type=lambda text: names_in(text, [TORCH, OURS, INLINE, *PEERS]),
        default=[TORCH, OURS, INLINE, *PEERS],
        metavar="NAME,…",
        help="these engines, and torch in any case (%(default)s)",
    )
    parser.add_argument("--pairs", type=int, default=ENOUGH_ROUNDS, help="rounds per workload (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="num_workers (%(default)s)")
    parser.add_argument("--seconds", type=float, help="how long the clock runs in a reading of a rate")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every reading to FILE; workloads of earlier runs stay in it"
    )
    parser.add_argument("--commit", help="what is measured, where git cannot tell")
    # Torch against torch: ratios must be about 1, else the harness or the machine cannot be trusted.
    parser.add_argument("--self-test", action="store_true", help="torch against torch, which must come out even")
    return parser.parse_args()


def read_old(path: Path | None, facts: Facts) -> Report | None:
    """What the file holds already; ends the program if this run could not stand beside it."""
    if path is None or not path.exists():
        return None
    old = read(path)
    try:
        require_same(old.facts, facts)
    except Mismatch as mismatch:
        raise SystemExit(f"{path} was {mismatch}\nremove it, or choose another file") from None
    return old


def say_where(facts: Facts, options: argparse.Namespace) -> None:
    load = os.getloadavg()[0]
    packages = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    print(
        f"{facts.processor}, {facts.cores} usable cores (load {load:.1f}), {facts.workers} workers, prefetch_factor "
        f"{facts.prefetch_factor}, {options.pairs} rounds, commit {facts.commit}, Python {facts.python}, {packages}"
    )
    if load > QUIET_LOAD:
        print("others are using this machine: expect wide intervals and distrust a near miss")
    print(flush=True)


@dataclass(slots=True)
class Course:
    """How a workload goes: the rounds so far, and who is out of it."""

    rounds: list[dict[str, Reading]] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure(server: Server, workload: Workload, facts: Facts, options: argparse.Namespace) -> list[Result]:
    """All rounds of a workload, and what they say."""
    course = Course()
    ours = AGAIN if options.self_test else OURS
    engines = [TORCH, AGAIN] if options.self_test else list(dict.fromkeys([TORCH, *options.engines]))
    for name in [TORCH, AGAIN] if options.self_test else [TORCH, OURS, INLINE, *PEERS]:
        reason = ENGINES[name].why_not(workload) if name in engines else "not asked for"
        if reason:
            course.absent[name] = reason
    for number in range(options.pairs):
        course.rounds.append({})
        for name in order_of(engines, number=number, ours=ours):
            is_due = name not in PEERS or workload.peer_rounds is None or number < workload.peer_rounds
            if name not in course.absent and is_due:
                workers = workload.workers or facts.workers
                take(server, course, workload, Setting(name, workload.name, workers, options.seconds))
        if TORCH in course.absent:
            break
    return judged(workload, course, cores=facts.cores, ours=ours)


def order_of(engines: Sequence[str], *, number: int, ours: str) -> list[str]:
    """Torch and ours in turning order, then the others, each time beginning with the next one."""
    pair = [name for name in (TORCH, ours) if name in engines]
    others = [name for name in engines if name not in pair]
    turn = number % len(others) if others else 0
    return [*(pair if number % 2 == 0 else reversed(pair)), *others[turn:], *others[:turn]]


def take(server: Server, course: Course, workload: Workload, setting: Setting) -> None:
    """One reading into the last round; an engine that fails is out of this workload."""
    try:
        course.rounds[-1][setting.engine] = server.take(setting)
    except ReadingFailed as failure:
        print(f"{setting.engine} failed at {setting.workload}:\n{failure}\n", file=sys.stderr, flush=True)
        course.absent[setting.engine] = f"failed: {str(failure).splitlines()[-1]}"
    else:
        compare(course, workload)


def compare(course: Course, workload: Workload) -> None:
    """Whoever delivered other bytes than torch in this round is out, unless the bytes hang on random numbers of its own."""
    current = course.rounds[-1]
    if TORCH not in current:
        return
    for name, reading in current.items():
        if workload.is_random and not ENGINES[name].draws_as_torch:
            note = f"{ENGINES[name].title} draws random numbers of its own, so its batches are right but not torch's"
            course.notes += [] if note in course.notes else [note]
        elif reading.checksum != current[TORCH].checksum:
            course.absent[name] = "failed: its batches differ from torch's"


def judged(workload: Workload, course: Course, *, cores: int, ours: str) -> list[Result]:
    results = []
    for figure in workload.figures:
        absent = dict(course.absent)
        for name in {name for each in course.rounds for name in each} - set(absent):
            if figure not in ENGINES[name].figures_of(workload):
                absent[name] = "keeps no workers from one epoch to the next"
        rounds: Sequence[Round] = course.rounds
        results.append(
            judge(workload, figure, rounds, cores=cores, ours=ours, absent=absent, notes=(*course.notes, *few(course)))
        )
    return results


def few(course: Course) -> list[str]:
    """Who took part in fewer rounds than torch."""
    counts = {name: sum(name in each for each in course.rounds) for name in ENGINES}
    names = [ENGINES[name].title for name in PEERS if 0 < counts[name] < counts[TORCH] and name not in course.absent]
    return [f"{', '.join(names)}: fewer readings than torch, as each takes long"] if names else []


def text_of(result: Result) -> str:
    """A paragraph for the terminal."""
    lines = [f"{result.workload} · {result.figure} · {result.title}"]
    for name, seen in result.seen.items():
        mark = mark_of(result) if name == result.ours else ""
        ratio = str(seen.ratio) if seen.ratio else ""
        inline = f"{seen.to_inline:.2f} × num_workers=0" if seen.to_inline else ""
        goal = f"wanted: {result.verdict.goal}" if name == result.ours and result.verdict.goal else ""
        line = f"  {mark:<6} {ENGINES[name].title:<14} {ratio:<22} {quantity(result.figure, seen.median):>12}"
        lines.append(f"{line}  {inline:<22} {goal}".rstrip())
    for name, reason in result.absent.items():
        mark = "FAIL" if reason.startswith("failed") else ""
        lines.append(f"  {mark:<6} {ENGINES[name].title:<14} n/a: {reason}")
    return "\n".join([*lines, *(f"         {note}" for note in result.notes), ""])


def mark_of(result: Result) -> str:
    if result.verdict.passed is None:
        return "SLOWER" if result.verdict.is_slower else ""
    return "pass" if result.verdict.passed else "MISS"


def say_how_it_went(results: Sequence[Result]) -> int:
    missed = [f"{result.workload} ({result.figure})" for result in results if result.verdict.passed is False]
    slower = [f"{result.workload} ({result.figure})" for result in results if result.verdict.is_slower]
    print(f"goals met: {sum(result.verdict.passed is True for result in results)}")
    if slower:
        print(f"slower than torch: {', '.join(slower)}")
    if missed:
        print(f"MISSED: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
