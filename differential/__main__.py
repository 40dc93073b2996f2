"""`python -m differential`: random loaders and scripts on torch and on antifreeze; all that differs must be declared.

    python -m differential                                  everything
    python -m differential --only loaders --first 1000 --loaders 50
    python -m differential --seed 17 --method spawn         one random loader
    python -m differential --script 'exits/*' --method fork some scripts

Exit status: 0 if every difference stands in the table in declared.py; 1 if not.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from differential import page
from differential.declared import DECLARED
from differential.methods import METHODS
from differential.outcome import Outcome
from differential.run_loaders import play_all
from differential.run_scripts import Script, find_scripts, run_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the arguments say."""
    wanted = _parse(arguments)
    if wanted.page or wanted.check:
        return page.main(check=wanted.check)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background: scripts get it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    began = time.monotonic()
    outcomes: list[Outcome] = []

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if wanted.verbose or not outcome.is_fine or outcome.no_comparison:
            say(str(outcome))

    # A short path: torch's workers make sockets there, and hang where they cannot.
    folder = Path(tempfile.mkdtemp(prefix="af-diff-", dir="/tmp"))
    try:
        if seeds := _seeds(wanted):
            play_all(seeds, method=wanted.method, jobs=wanted.jobs, folder=folder, tell=tell)
        if scripts := _scripts(wanted):
            run_all(scripts, method=wanted.method, jobs=wanted.jobs, is_cold=wanted.cold, folder=folder, tell=tell)
    finally:
        if wanted.keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    say(summary(outcomes, time.monotonic() - began))
    unneeded = _unneeded(outcomes) if _is_everything(wanted) else []
    for name in unneeded:
        say(f"declared, but no program needs it: {name}")
    return 0 if outcomes and all(each.is_fine for each in outcomes) and not unneeded else 1


def _seeds(wanted: argparse.Namespace) -> list[int]:
    if wanted.seed:
        return list(wanted.seed)
    if wanted.script or wanted.only == "scripts":
        return []
    return list(range(wanted.first, wanted.first + wanted.loaders))


def _scripts(wanted: argparse.Namespace) -> list[Script]:
    if wanted.seed or wanted.only == "loaders":
        return []
    patterns = wanted.script or ["*"]
    return [script for script in find_scripts() if any(fnmatch.fnmatch(script.name, each) for each in patterns)]


def _is_everything(wanted: argparse.Namespace) -> bool:
    return not (wanted.seed or wanted.script or wanted.only or wanted.method)


def _unneeded(outcomes: Sequence[Outcome]) -> list[str]:
    needed = {id(each.declared) for outcome in outcomes for each in outcome.differences}
    return [each.name for each in DECLARED if id(each) not in needed]


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """What came of all of them, in a few lines."""
    lines = []
    for kind in ("loader", "script"):
        own = [each for each in outcomes if each.program.startswith(kind)]
        counts = Counter(_class_of(each) for each in own)
        told = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        lines.append(f"{kind}s: {len(own)} pairs of runs: {told or 'none'}")
    needed = Counter(each.declared.name for out in outcomes for each in out.differences if each.declared is not None)
    lines += [f"  declared: {name} ({count} times)" for name, count in needed.most_common()]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return "\n".join([*lines, f"{seconds:.0f} s, of processors {used.ru_utime + used.ru_stime:.0f} s"])


def _class_of(outcome: Outcome) -> str:
    if outcome.no_comparison:
        return "not compared"
    if not outcome.is_fine:
        return "with undeclared differences"
    return "with declared differences only" if outcome.differences else "the same"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__.splitlines()[0])
    parser.add_argument("--loaders", type=int, default=500, help="how many random loaders (default 500)")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first of them")
    parser.add_argument("--seed", type=int, action="append", help="only the loader of this seed; can be given again")
    parser.add_argument("--script", action="append", help="only scripts whose category/name matches; again if wanted")
    parser.add_argument("--only", choices=("loaders", "scripts"), help="only these")
    parser.add_argument("--method", choices=METHODS, help="only this start method")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="programs at a time")
    parser.add_argument("--cold", action="store_true", help="start an interpreter for each script, as users do")
    parser.add_argument("--verbose", action="store_true", help="also say what is the same")
    parser.add_argument("--keep", action="store_true", help="keep the traces")
    parser.add_argument("--page", action="store_true", help="write the table into docs/differential.md")
    parser.add_argument("--check", action="store_true", help="is the table in docs/differential.md what --page writes?")
    return parser.parse_args(arguments)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
