"""Workers start by the method that torch would use, unless only the trainer has what they would need."""

import pytest

from antifreeze.engine.backends.choice import Clean, Grown, Hazard, InProcess, choose

SERVED = Hazard("dataset.requests", "a queue that a thread serves", "that thread is in no worker")
SERVED_HERE = Hazard("dataset.loop", "an event loop", "its thread is in no worker", stays_here=True)


@pytest.mark.parametrize(("start_method", "chosen"), [("fork", Grown()), ("spawn", Clean()), ("forkserver", Clean())])
def test_the_start_method_decides(start_method: str, chosen: object) -> None:
    assert choose(start_method, None) == chosen


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_what_lives_by_a_thread_of_the_trainer_is_not_sent_to_a_fresh_process(start_method: str) -> None:
    assert choose(start_method, SERVED_HERE) == InProcess(SERVED_HERE)


def test_what_may_start_its_thread_where_it_arrives_is_sent() -> None:
    assert choose("spawn", SERVED) == Clean()


@pytest.mark.parametrize("hazard", [SERVED, SERVED_HERE])
def test_a_fork_is_a_fork_whatever_the_dataset_holds(hazard: Hazard) -> None:
    assert choose("fork", hazard) == Grown()


def test_a_hazard_reads_as_a_sentence() -> None:
    assert str(SERVED) == "dataset.requests is a queue that a thread serves: that thread is in no worker"
