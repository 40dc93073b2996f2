"""`make chaos`: what is pure about it, and a minute of the real thing."""

import os
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos import page, report
from chaos.__main__ import ALL, describe
from chaos.consumer import Consumer
from chaos.faults import KINDS, Family, Fault, Point
from chaos.judge import (
    Compared,
    Evidence,
    Outcome,
    Struck,
    compare,
    hits,
    is_ours,
    outcome_from,
    pids,
    times_to_be_back,
)
from chaos.trial import CONSUMERS, draw

from antifreeze.probes.bounded import run_bounded

TRIALS = [draw(3, number) for number in range(2000)]


def test_a_trial_is_drawn_from_the_seed_and_its_number_alone() -> None:
    assert [draw(3, number) for number in range(40)] == TRIALS[:40]
    assert [draw(4, number) for number in range(40)] != TRIALS[:40]


def test_kinds_and_their_points_are_drawn_uniformly() -> None:
    drawn = Counter((fault.kind, fault.point) for trial in TRIALS for fault in trial.faults)
    for kind in KINDS:
        counts = [drawn[kind.name, point] for point in kind.points]
        assert sum(counts) > 150
        even = sum(counts) / len(counts)
        assert all(even / 2 < count < even * 2 for count in counts), (kind.name, counts)


def test_no_two_faults_of_a_trial_meet() -> None:
    for trial in TRIALS:
        placed = [fault for fault in trial.faults if fault.point is not Point.STARTING]
        assert len({(fault.epoch, fault.batch) for fault in placed}) == len(placed)
        window = trial.workers * trial.prefetch_factor
        for wide in (each for each in placed if each.family is Family.STRIKE or each.point is Point.ANY_MOMENT):
            near = [each for each in placed if each.epoch == wide.epoch and abs(each.batch - wide.batch) <= window]
            assert near == [wide]


def test_a_fault_strikes_at_a_sample_that_there_is() -> None:
    for trial in TRIALS:
        for fault in trial.faults:
            assert 0 <= fault.position < trial.batch_size
            assert 0 <= fault.batch < trial.batches - 1  # the last is a short one
            assert fault.point is not Point.WRITING or trial.shape == "tagged"
            assert fault.kind != "clean base killed" or trial.context != "fork"


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        ("abcd", Compared()),
        ("abc", Compared(lost=1)),
        ("", Compared(lost=4)),
        ("abbcd", Compared(repeated=1)),
        ("abxd", Compared(wrong=1)),
        ("abdc", Compared(wrong=1)),
        ("abbd", Compared(lost=1, repeated=1)),
    ],
)
def test_batches_that_are_lost_repeated_or_wrong_are_counted(ours: str, found: Compared) -> None:
    assert compare([ours], ["abcd"]) == found
    assert compare(["abcd", ours], ["abcd", "abcd"]) == found


def test_an_epoch_that_never_came_is_lost() -> None:
    assert compare(["abcd"], ["abcd", "efgh"]) == Compared(lost=4)


@pytest.mark.long(but=3)
@pytest.mark.parametrize("kind", CONSUMERS)
def test_what_the_program_keeps_is_found_changed_once_somebody_writes_to_it(kind: str) -> None:
    for seed in range(20):
        consumer = Consumer(kind, seed)
        consumer._limit = 100
        batch = {"a": torch.arange(12.0), "b": [np.arange(6)]}
        consumer.take(batch)
        consumer.check()
        assert not consumer.changed
        batch["a"] += 1
        consumer.drop()
        assert consumer.changed


FIRED = {"worker": 1, "pid": 70, "at": 10.0}
NOTHING = Evidence(fired={}, struck={}, births=(), records=(), samples={0: 5})


def record(kind: str, **facts: object) -> dict[str, object]:
    return {"kind": kind, "pid": 70, "exitcode": None, "sample": None, **facts}


@pytest.mark.parametrize(
    ("kind", "trace", "other"),
    [
        ("SIGBUS", record("worker-replaced", exitcode=-7), record("worker-replaced", exitcode=-9)),
        ("os._exit(0)", record("worker-replaced", exitcode=0), record("worker-replaced", exitcode=0, pid=71)),
        ("StopIteration", record("sample-retried", sample="5"), record("sample-retried", sample="6")),
        ("SIGSTOP", record("stall"), record("stall", pid=71)),
    ],
)
def test_a_fault_counts_only_if_the_ledger_shows_it(kind: str, trace: dict, other: dict) -> None:
    fault = Fault(0, kind, Point.FIRST, 0, 0)
    fired = replace(NOTHING, fired={0: FIRED})
    assert hits([fault], replace(fired, records=[trace])) == [fault]
    assert hits([fault], replace(fired, records=[other])) == []
    assert hits([fault], replace(NOTHING, records=[trace])) == []


def test_a_strike_counts_only_if_all_that_it_killed_was_missed() -> None:
    fault = Fault(0, "stem killed", Point.BETWEEN_BATCHES, 0, 3, worker=0)
    ended = [record("worker-replaced", pid=70), record("worker-replaced", pid=71)]

    def has_hit(struck: Struck) -> bool:
        return bool(hits([fault], replace(NOTHING, struck={0: struck}, records=ended)))

    assert has_hit(Struck((70, 71), has_new_source=True))
    assert not has_hit(Struck((70, 72), has_new_source=True))
    assert not has_hit(Struck((70, 71), has_new_source=False))


def test_the_time_to_be_back_ends_with_the_next_worker_of_that_number() -> None:
    births = [{"worker": 1, "pid": 70, "at": 9.0}, {"worker": 0, "pid": 72, "at": 10.1}]
    births += [{"worker": 1, "pid": 73, "at": 10.25}, {"worker": 1, "pid": 74, "at": 11.0}]
    evidence = replace(NOTHING, fired={0: FIRED}, births=births)
    assert times_to_be_back([Fault(0, "SIGKILL", Point.IDLE, 0, 0)], evidence) == [0.25]
    assert times_to_be_back([Fault(0, "SIGABRT", Point.IDLE, 0, 0)], evidence) == []


def test_shared_memory_of_others_is_not_a_leak() -> None:
    evidence = replace(NOTHING, fired={0: FIRED}, births=[{"worker": 0, "pid": 72, "at": 10.1}])
    assert pids(evidence) == {70, 72}
    assert is_ours("/dev/shm/torch_70_123_4", {70, 72})
    assert not is_ours("/dev/shm/torch_71_123_4", {70, 72})
    assert not is_ours("/dev/shm/psm_70ab", {70, 72})
    assert is_ours("descriptor 9 -> socket:[1]", {70, 72})


FINE = Outcome(12, 1.5, (("SIGKILL", "idle"),), 0, Compared(), back_s=(0.05,))


@pytest.mark.parametrize(
    "outcome",
    [
        replace(FINE, compared=Compared(lost=1)),
        replace(FINE, compared=Compared(changed=1)),
        replace(FINE, raised="WorkerLost"),
        replace(FINE, hang="everybody waits"),
        replace(FINE, leaks=("thread 'x'",)),
    ],
)
def test_a_failure_says_how_to_play_it_again(outcome: Outcome) -> None:
    assert FINE.is_fine and not outcome.is_fine
    assert 'make chaos CHAOS="--seed 7 --trial 12"' in describe(outcome, 7, ALL)
    assert "--kind 'SIGKILL'" in describe(outcome, 7, ["SIGKILL"])


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    facts = report.Facts("2026-01-01", "a processor", 2, 4, "6.1", "3.11", "2.13", "abc", 0.5)
    written = report.Report(facts, 7, 8, 90, (FINE, replace(FINE, leaks=("a",))), (FINE,))
    report.write(written, tmp_path / "report.json")
    assert report.read(tmp_path / "report.json") == written
    assert outcome_from(FINE.as_json()) == FINE
    assert "| SIGKILL | 2 | 2 |" in page.table(written)


def test_the_page_is_the_one_that_its_figures_make() -> None:
    assert page.main(check=True) == 0


def test_the_figures_of_the_page_are_of_a_run_that_was_long_enough() -> None:
    run = report.read(page.FIGURES)
    counts = Counter(kind for outcome in run.outcomes for kind, _ in outcome.hits)
    assert counts.total() >= 2000
    played = run.kinds or [kind.name for kind in KINDS if kind.needs is None]
    assert min(counts[kind] for kind in played) >= 100
    assert all(outcome.is_fine for outcome in (*run.outcomes, *run.quiet))


@pytest.mark.long
def test_a_minute_of_chaos() -> None:
    command = [sys.executable, "-m", "chaos", "--seed", "4", "--seconds", "35", "--jobs", "3"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANTIFREEZE")}
    # A short one: torch's workers, whose batches are compared with ours, make sockets there, and hang where they cannot.
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder:
        environment |= {"PYTHONPATH": str(report.ROOT), "TMPDIR": folder}
        ended = run_bounded(command, timeout_s=200, environ=environment)
    assert ended.exit_status == 0, ended.stdout + ended.stderr
    assert "--seed 4" in ended.stdout


def test_the_hang_alarm_tells_where_the_trainer_is_whatever_state_the_pool_is_in() -> None:
    """It failed itself where it struck while a worker was being replaced, whose board is closed."""
    from chaos.play import where_everybody_is  # needs torch

    import antifreeze

    batches = iter(antifreeze.DataLoader(range(4), num_workers=1, multiprocessing_context="fork"))
    next(batches)
    stage: Any = SimpleNamespace(ours=[[]], iterator=batches)
    pool = batches._epoch._pool  # type: ignore[attr-defined]
    assert "in test_the_hang_alarm" in where_everybody_is(stage, sys._getframe())
    pool.workers[0].board.close()
    assert "its board is closed" in where_everybody_is(stage, sys._getframe())
    batches._shutdown_workers()  # type: ignore[attr-defined]
    assert "stopped=True" in where_everybody_is(stage, sys._getframe())
    del pool.workers
    told = where_everybody_is(stage, sys._getframe())
    assert "in test_the_hang_alarm" in told and "AttributeError" in told
