"""The arithmetic of the benchmarks; the figures themselves come from `make bench`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from run import Round, interval, judge
from workloads import WORKLOADS, Rate, Start, Workload


def workload_with(goal: type[Rate] | type[Start]) -> Workload:
    return next(workload for workload in WORKLOADS if isinstance(workload.goal, goal))


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # Ranks from tables of the sign test: 7 values need all of them, 9 may drop one on each side, 20 five.
    [(7, 0, 6), (9, 1, 7), (20, 5, 14)],
)
def test_the_interval_is_that_of_the_sign_test(count: int, low: int, high: int) -> None:
    found = interval([float(value) for value in reversed(range(count))])
    assert (found.low, found.median, found.high) == (low, (count - 1) / 2, high)


def test_a_rate_passes_when_its_median_reaches_the_floor() -> None:
    workload = workload_with(Rate)
    assert isinstance(workload.goal, Rate)
    just, short = workload.goal.floor, workload.goal.floor * 0.99
    assert judge(workload, [Round(just, 1.0, 1.0)] * 7, self_test=False).passed
    assert not judge(workload, [Round(short, 1.0, 1.0)] * 7, self_test=False).passed


def test_a_start_passes_when_it_is_late_by_no_more_than_its_allowance() -> None:
    workload = workload_with(Start)
    assert isinstance(workload.goal, Start)
    assert judge(workload, [Round(1.0, 1.0 + workload.goal.allowance_s * 0.9, 1.0)] * 7, self_test=False).passed
    assert not judge(workload, [Round(1.0, 1.0 + workload.goal.allowance_s * 1.1, 1.0)] * 7, self_test=False).passed


def test_an_engine_against_itself_must_come_out_even() -> None:
    workload = workload_with(Rate)
    assert judge(workload, [Round(1.0, 1.0, 1.0)] * 7, self_test=True).passed
    assert not judge(workload, [Round(2.0, 1.0, 1.0)] * 7, self_test=True).passed
