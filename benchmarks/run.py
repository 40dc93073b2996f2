"""Measure antifreeze beside torch: `python benchmarks/run.py` (`make bench`).

Every pair is a measurement of torch and one of antifreeze, one right after the other, in turning order (torch first,
then antifreeze first, …), so that whatever else the machine does hits both. A ratio is formed within each pair;
reported are the median of the ratios and an interval that holds the true median with at least 95 %. The last column
is each engine's rate over that of `num_workers=0`, measured once per pair. `measure.py` says what is timed.

Exit status 1 if a median misses its floor or the batches differ from torch's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from measure import PREFETCH_FACTOR, Reading, Setting, measure
from workloads import WORKLOADS, Rate, Start, Workload

# Two runs of the same engine may differ by this much before we distrust the harness or the machine.
SELF_TEST_BAND = (0.85, 1.18)


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of one pair, and of no workers at all."""

    torch_s: float
    ours_s: float
    inline_s: float


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Result:
    workload: str
    title: str
    batches: int
    rounds: tuple[Round, ...]
    ratio: Interval
    """torch's seconds over ours: above 1 we are faster."""
    excess_s: Interval
    """Our seconds minus torch's."""
    torch_to_inline: float
    ours_to_inline: float
    goal: str
    passed: bool


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an ending that stops the process being measured, too
    chosen = [workload for workload in WORKLOADS if not options.only or workload.name in options.only]
    ours = "torch" if options.self_test else "antifreeze"
    print(
        f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), {options.workers} workers, "
        f"prefetch_factor {PREFETCH_FACTOR}, {options.pairs} pairs of torch and {ours}, "
        f"torch {version('torch')}, Python {platform.python_version()}",
        flush=True,
    )
    if os.getloadavg()[0] > 0.5:
        print("others are using this machine: expect wide intervals and distrust a near miss", flush=True)
    results = []
    for workload in chosen:
        check_batches(workload, ours=ours, workers=options.workers)
        rounds = tuple(
            measure_round(workload, ours=ours, workers=options.workers, ours_first=number % 2 == 1)
            for number in range(options.pairs)
        )
        results.append(judge(workload, rounds, self_test=options.self_test))
        print(line_of(results[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report(options, results), indent=2) + "\n")
    return 0 if all(result.passed for result in results) else 1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--only", action="append", choices=names, help="one workload; may be given several times")
    # An even number: each engine comes first in half of them.
    parser.add_argument("--pairs", type=int, default=8, help="pairs per workload (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="num_workers (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every reading to FILE")
    # Torch against torch: ratios must be about 1, else the harness or the machine cannot be trusted.
    parser.add_argument("--self-test", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def check_batches(workload: Workload, *, ours: str, workers: int) -> None:
    """Every byte of every batch must be what torch delivers."""
    torch, other = (measure(Setting(engine, workload.name, workers, checksum_all=True)) for engine in ("torch", ours))
    require_same(workload, torch, other)


def measure_round(workload: Workload, *, ours: str, workers: int, ours_first: bool) -> Round:
    # The two of a pair run right after each other; no workers at all is only a reference.
    engines = (ours, "torch") if ours_first else ("torch", ours)
    readings = [measure(Setting(engine, workload.name, workers)) for engine in engines]
    require_same(workload, *readings)
    torch, other = reversed(readings) if ours_first else readings
    inline = measure(Setting("inline", workload.name, workers))
    require_same(workload, torch, inline)
    return Round(torch.seconds, other.seconds, inline.seconds)


def require_same(workload: Workload, one: Reading, other: Reading) -> None:
    if (one.batches, one.checksum) != (other.batches, other.checksum):
        raise SystemExit(f"{workload.name}: the batches differ: {one} and {other}")


def judge(workload: Workload, rounds: Sequence[Round], *, self_test: bool) -> Result:
    """The verdict on a workload, from its readings alone."""
    ratio = interval([round_.torch_s / round_.ours_s for round_ in rounds])
    excess_s = interval([round_.ours_s - round_.torch_s for round_ in rounds])
    if self_test and isinstance(workload.goal, Rate):
        goal = f"{SELF_TEST_BAND[0]} to {SELF_TEST_BAND[1]} x"
        passed = SELF_TEST_BAND[0] <= ratio.median <= SELF_TEST_BAND[1]
    elif self_test and isinstance(workload.goal, Start):
        # In seconds, as the workload itself is judged.
        goal, passed = f"within {workload.goal.allowance_s:g} s", abs(excess_s.median) <= workload.goal.allowance_s
    elif isinstance(workload.goal, Rate):
        goal, passed = f"at least {workload.goal.floor:g} x", ratio.median >= workload.goal.floor
    else:
        goal, passed = f"at most +{workload.goal.allowance_s:g} s", excess_s.median <= workload.goal.allowance_s
    return Result(
        workload=workload.name,
        title=workload.title,
        batches=workload.goal.batches if isinstance(workload.goal, Rate) else 1,
        rounds=tuple(rounds),
        ratio=ratio,
        excess_s=excess_s,
        torch_to_inline=statistics.median(round_.inline_s / round_.torch_s for round_ in rounds),
        ours_to_inline=statistics.median(round_.inline_s / round_.ours_s for round_ in rounds),
        goal=goal,
        passed=passed,
    )


def interval(values: Sequence[float]) -> Interval:
    """The median, and the narrowest pair of ranks around it that holds the true median with at least 95 %.

    No assumption on the distribution: each value lies below the true median with probability one half. With fewer than
    six values even the smallest and the largest hold it with less, and are given all the same.
    """
    ordered, count = sorted(values), len(values)
    rank, outside = 0, 2 * 0.5**count
    while outside + 2 * math.comb(count, rank + 1) * 0.5**count <= 0.05:
        rank += 1
        outside += 2 * math.comb(count, rank) * 0.5**count
    return Interval(ordered[rank], statistics.median(ordered), ordered[count - 1 - rank])


def line_of(result: Result) -> str:
    torch_s = statistics.median(round_.torch_s for round_ in result.rounds)
    ours_s = statistics.median(round_.ours_s for round_ in result.rounds)
    if result.batches == 1:
        what = f"torch {torch_s:.3f} s, ours {ours_s:.3f} s"
        seen = f"{result.excess_s.median:+.3f} s [{result.excess_s.low:+.3f}, {result.excess_s.high:+.3f}]"
    else:
        what = f"torch {result.batches / torch_s:.1f}/s, ours {result.batches / ours_s:.1f}/s"
        seen = f"{result.ratio.median:.2f} x [{result.ratio.low:.2f}, {result.ratio.high:.2f}]"
    return (
        f"{'pass' if result.passed else 'MISS'}  {result.workload:<21} {seen:<28} wanted {result.goal:<15} {what}; "
        f"to num_workers=0: torch {result.torch_to_inline:.2f} x, ours {result.ours_to_inline:.2f} x"
    )


def report(options: argparse.Namespace, results: Sequence[Result]) -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "workers": options.workers,
        "prefetch_factor": PREFETCH_FACTOR,
        "pairs": options.pairs,
        "self_test": options.self_test,
        "torch": version("torch"),
        "python": platform.python_version(),
        "results": [asdict(result) for result in results],
    }


if __name__ == "__main__":
    sys.exit(main())
