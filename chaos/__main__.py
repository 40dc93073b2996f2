"""`python -m chaos`: plays trials in several lanes until enough faults have hit, and says what came of them.

Exit status: 0 if nothing was lost, repeated, wrong, changed, raised, hung or left behind; 1 if anything was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos import page
from chaos.faults import BY_NAME, KINDS
from chaos.judge import Compared, Outcome, outcome_from
from chaos.limits import can_limit
from chaos.report import Report, facts_of_this_machine, write
from chaos.trial import draw

ROOT = Path(__file__).resolve().parents[1]
# A lane that does not even notice its own deadline.
HARD_DEADLINE_S = 240.0
SAY_EVERY_S = 15.0
# A trial of this length is named while it is under way: should the run be cut off, it is known where to look.
LONG_TRIAL_S = 40.0
# SIGKILLs one at a time with nothing else going on, for the time to be back. Trials of other numbers than the others'.
FIRST_QUIET = 1_000_000
ALL = tuple(kind.name for kind in KINDS if kind.needs is None or can_limit(kind.needs))


class Lane:
    """The runner's end of a lane."""

    def __init__(self, seed: int, folder: Path, log: Any) -> None:
        reading, writing = os.pipe()
        self.outcomes = reading
        self.trial: int | None = None
        self.began = 0.0
        self.is_named = False
        self._unread = b""
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "chaos.lane", str(seed), str(writing), str(folder)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[writing],
            cwd=ROOT,
        )
        os.close(writing)

    def give(self, trial: int, kinds: Sequence[str]) -> None:
        """Have it play this trial."""
        assert self._popen.stdin is not None
        self.trial, self.began, self.is_named = trial, time.monotonic(), False
        self._popen.stdin.write(json.dumps({"trial": trial, "kinds": kinds}).encode() + b"\n")
        self._popen.stdin.flush()

    def take(self) -> Outcome | None:
        """What came of it, if that is known by now; a lane that has ended itself has failed the trial."""
        came = os.read(self.outcomes, 1 << 20)
        self._unread += came
        if not came:
            return self.fail(f"the trainer itself ended, with exit code {self._popen.wait(10)}")
        if not self._unread.endswith(b"\n"):
            return None
        line, self._unread = self._unread, b""
        self.trial = None
        return outcome_from(json.loads(line))

    def fail(self, why: str) -> Outcome:
        """The outcome of a trial that the lane cannot tell."""
        number = self.trial if self.trial is not None else -1
        return Outcome(number, time.monotonic() - self.began, (), 0, Compared(), hang=why)

    @property
    def has_ended(self) -> bool:
        """Whether it can play no more."""
        return self._popen.poll() is not None

    def end(self) -> None:
        """No more trials: let it leave, or make it."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        os.close(self.outcomes)

    def kill(self) -> None:
        """End it now; its workers die of that by themselves."""
        self._popen.send_signal(signal.SIGKILL)
        self._popen.wait(10)


@dataclass(slots=True)
class Show:
    """All trials of a run."""

    seed: int
    folder: Path
    log: Any
    outcomes: list[Outcome]

    def run(self, numbers: Iterator[int], *, kinds: Sequence[str], jobs: int, enough: Callable[[], bool]) -> None:
        """Play these trials, so many at a time, until it is enough; those under way are played to their end."""
        lanes = [Lane(self.seed, self.folder, self.log) for _ in range(jobs)]
        try:
            while True:
                for place, lane in enumerate(lanes):
                    if lane.has_ended:
                        lane.end()
                        lanes[place] = Lane(self.seed, self.folder, self.log)
                    if lanes[place].trial is None and not enough() and (number := next(numbers, None)) is not None:
                        lanes[place].give(number, kinds)
                busy = [lane for lane in lanes if lane.trial is not None]
                if not busy:
                    return
                self._take_in(busy, kinds)
        finally:
            for lane in lanes:
                lane.end()

    def _take_in(self, busy: list[Lane], kinds: Sequence[str]) -> None:
        ready, _, _ = select.select([lane.outcomes for lane in busy], [], [], 1.0)
        for lane in busy:
            outcome = lane.take() if lane.outcomes in ready else None
            if outcome is None and time.monotonic() - lane.began > HARD_DEADLINE_S:
                outcome = lane.fail(f"no sign of life for {HARD_DEADLINE_S:.0f} s")
                lane.kill()
            elif outcome is None and time.monotonic() - lane.began > LONG_TRIAL_S and not lane.is_named:
                lane.is_named = True
                say(f"trial {lane.trial} has been under way for {LONG_TRIAL_S:.0f} s")
            if outcome is not None:
                lane.trial = None
                self.outcomes.append(outcome)
                if not outcome.is_fine:
                    say(describe(outcome, self.seed, kinds))


def describe(outcome: Outcome, seed: int, kinds: Sequence[str]) -> str:
    """A failure, with the command that plays it again."""
    only = "" if tuple(kinds) == ALL else "".join(f" --kind '{kind}'" for kind in kinds)
    lines = [
        f"FAILED trial {outcome.number}: {outcome.compared}, hits {outcome.hits}",
        f'  again: make chaos CHAOS="--seed {seed} --trial {outcome.number}{only}"',
        f"  {draw(seed, outcome.number, kinds=[BY_NAME[kind] for kind in kinds])}",
        *(f"  left behind: {leak}" for leak in outcome.leaks),
        outcome.raised,
        outcome.hang,
    ]
    return "\n".join(line for line in lines if line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the arguments say."""
    wanted = _parse(arguments)
    if wanted.page or wanted.check:
        return page.main(check=wanted.check)
    seed = random.randrange(10_000) if wanted.seed is None else wanted.seed
    say(f'seed {seed}; again: make chaos CHAOS="--seed {seed} --faults {wanted.faults} --each {wanted.each}"')
    began, facts = time.monotonic(), facts_of_this_machine()  # now: others may commit meanwhile
    with _folder(keep=wanted.keep) as folder, open(folder / "log", "wb") as log:
        show, quiet = Show(seed, folder, log, []), Show(seed, folder, log, [])
        kinds = tuple(wanted.kind or ALL)
        enough = _limit(show, wanted, kinds, began)
        numbers = iter([wanted.trial]) if wanted.trial is not None else iter(range(1 << 62))
        show.run(numbers, kinds=kinds, jobs=1 if wanted.trial is not None else wanted.jobs, enough=enough)
        if wanted.quiet and wanted.trial is None:
            say("the same with nothing else going on, for the time to be back")
            quiet_numbers = iter(range(FIRST_QUIET, FIRST_QUIET + 1_000))
            is_done = lambda: sum(len(each.back_s) for each in quiet.outcomes) >= wanted.quiet  # noqa: E731
            quiet.run(quiet_numbers, kinds=("SIGKILL",), jobs=1, enough=is_done)
    report = Report(
        facts,
        seed=seed,
        jobs=wanted.jobs,
        seconds=round(time.monotonic() - began),
        outcomes=tuple(show.outcomes),
        quiet=tuple(quiet.outcomes),
        kinds=kinds,
    )
    say(page.table(report))
    if wanted.json:
        write(report, wanted.json)
    return 0 if all(each.is_fine for each in (*show.outcomes, *quiet.outcomes)) and show.outcomes else 1


def _limit(show: Show, wanted: argparse.Namespace, kinds: Sequence[str], began: float) -> Callable[[], bool]:
    last_said = began

    def enough() -> bool:
        nonlocal last_said
        now = time.monotonic()
        hit = Counter(kind for outcome in show.outcomes for kind, _ in outcome.hits)
        if now - last_said > SAY_EVERY_S:
            last_said = now
            failed = sum(not outcome.is_fine for outcome in show.outcomes)
            fewest = min(hit[kind] for kind in kinds)
            say(
                f"{now - began:4.0f} s: {hit.total()} faults in {len(show.outcomes)} trials, {failed} failed; "
                f"fewest of a kind: {fewest}"
            )
        if wanted.seconds is not None and now - began > wanted.seconds:
            return True
        return hit.total() >= wanted.faults and all(hit[kind] >= wanted.each for kind in kinds)

    return enough


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="antifreeze-chaos-"))
    try:
        yield folder
    finally:
        if keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="what everything is drawn from; by default another one each time")
    parser.add_argument("--faults", type=int, default=10_000, help="how many must hit in all")
    parser.add_argument("--each", type=int, default=100, help="how many must hit of each kind")
    parser.add_argument("--seconds", type=float, help="begin no trial after this time, however many have hit")
    parser.add_argument("--jobs", type=int, default=4 * (os.cpu_count() or 1), help="trials at a time: most only wait")
    parser.add_argument("--quiet", type=int, default=0, help="SIGKILLs with nothing else going on, to be timed")
    parser.add_argument("--trial", type=int, help="play this one alone")
    parser.add_argument("--kind", action="append", choices=ALL, help="faults of this kind only; can be given again")
    parser.add_argument("--json", type=Path, help="write everything that is known into this file")
    parser.add_argument("--keep", action="store_true", help="keep what the trials said")
    parser.add_argument("--page", action="store_true", help="write docs/reliability.md from docs/reliability.json")
    parser.add_argument("--check", action="store_true", help="is docs/reliability.md what --page would write?")
    return parser.parse_args(arguments)


def say(text: str) -> None:
    """Tell whoever runs us."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
