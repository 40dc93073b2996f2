"""AF111: the training is somewhere else, and the loader is well."""

from dataclasses import replace

import pytest

from antifreeze.doctor.checks.not_in_loading import not_in_loading
from antifreeze.doctor.facts import Facts, ProcessPicture
from antifreeze.doctor.finding import Finding, Weight

RUNNING, IDLE = not_in_loading.sick.processes
BLOCKED = replace(RUNNING, state="S", cpu_share=0.0, waits_in="socket", peer="10.0.0.5:443", still_s=42.0)


def found(*processes: ProcessPicture) -> list[Finding]:
    return not_in_loading.examine(Facts(processes=processes))


def test_a_loop_in_the_training_step_is_named_and_loading_called_healthy() -> None:
    (finding,) = found(RUNNING, IDLE)
    assert "the main process is in model.py:88, not in loading: it computes" in finding.what
    assert "loading is healthy: all 1 workers are idle" in finding.why
    assert finding.weight is Weight.POSSIBLE


def test_a_wait_for_a_server_names_the_server_and_is_likely_after_a_while() -> None:
    (finding,) = found(BLOCKED, IDLE)
    assert "it waits for an answer over the network (10.0.0.5:443)" in finding.what
    assert finding.weight is Weight.LIKELY
    (early,) = found(replace(BLOCKED, still_s=4.0), IDLE)
    assert early.weight is Weight.POSSIBLE


@pytest.mark.parametrize("waits_in", ["sleep", "disk", "child"])
def test_waits_that_end_by_themselves_are_never_more_than_possible(waits_in: str) -> None:
    (finding,) = found(replace(BLOCKED, waits_in=waits_in, peer=""), IDLE)
    assert finding.weight is Weight.POSSIBLE


def test_a_step_beside_workers_that_get_work_is_fine() -> None:
    assert found(RUNNING, replace(IDLE, still_s=0.0)) == []
    assert found(RUNNING, replace(IDLE, stage="fetch")) == []
    assert found(replace(RUNNING, same_place_s=0.0), IDLE) == []


def test_whoever_only_waits_for_the_processes_that_it_launched_is_fine() -> None:
    launcher = replace(BLOCKED, pid=1000, waits_in="child")
    rank = ProcessPicture(pid=1001, parent=1000, role="trainer", rank=0, state="R")
    assert found(launcher, rank) == []
