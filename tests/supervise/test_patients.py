"""What the doctor is told about a worker that is stuck or dead, and what it says."""

import pytest

from antifreeze.doctor.facts import Death, Place, Stuck
from antifreeze.doctor.finding import Weight
from antifreeze.engine.supervise.patients import (
    Surroundings,
    as_places,
    disease_of_dead,
    disease_of_stuck,
    how_it_ended,
)
from antifreeze.engine.supervise.stacks import parse

FORKED = Surroundings(workers=2, start_method="fork")
LINE = Place("/home/me/data.py", 57, "__getitem__", "with self.lock:")
LIBRARY = "/usr/lib/python3.11/concurrent/futures/_base.py"


def stuck(*frames: Place, waits_in: str | None = "lock", state: str = "S", cpu_share: float = 0.0) -> Stuck:
    return Stuck(
        role="worker",
        worker=1,
        pid=4243,
        sample="17",
        seconds=12.0,
        typical_s=0.01,
        frames=frames or (LINE,),
        place=(frames or (LINE,))[-1],
        stage="fetch",
        waits_in=waits_in,
        state=state,
        cpu_share=cpu_share,
    )


def test_a_lock_that_was_held_at_the_fork_is_named_with_the_threads_that_may_have_held_it() -> None:
    found = disease_of_stuck(stuck(), FORKED._replace(threads=("MainThread", "grpc-poller")))
    assert found is not None and (found.code, found.weight) == ("AF104", Weight.LIKELY)
    assert "grpc-poller" in found.why and "data.py:57" in found.why


def test_threads_are_not_blamed_where_workers_were_not_forked() -> None:
    found = disease_of_stuck(stuck(), FORKED._replace(start_method="spawn", threads=("grpc-poller",)))
    assert found is None or found.code not in ("AF101", "AF104")


@pytest.mark.parametrize(
    ("patient", "code"),
    [
        (stuck(Place(LIBRARY, 451, "result"), LINE), "AF101"),
        (stuck(waits_in="socket"), "AF103"),
        (stuck(waits_in=None, state="T"), "AF112"),
        (stuck(waits_in=None, state="R", cpu_share=1.0), "AF108"),
    ],
)
def test_what_a_worker_waits_for_has_its_disease(patient: Stuck, code: str) -> None:
    found = disease_of_stuck(patient, FORKED)
    assert found is not None and found.code == code


def test_only_the_kernels_word_is_certain_of_a_worker_that_may_still_come_back() -> None:
    waits, stopped = disease_of_stuck(stuck(waits_in="socket"), FORKED), disease_of_stuck(stuck(state="T"), FORKED)
    assert waits is not None and waits.weight is Weight.LIKELY
    assert stopped is not None and stopped.weight is Weight.CERTAIN


@pytest.mark.parametrize(
    ("exitcode", "times", "code"),
    [(-9, 1, "AF311"), (-11, 1, "AF312"), (-11, 2, "AF313"), (3, 1, "AF314"), (0, 1, "AF314")],
)
def test_how_a_worker_ended_has_its_disease(exitcode: int, times: int, code: str) -> None:
    death = Death(worker=0, pid=4243, exitcode=exitcode, sample="13", how=how_it_ended(exitcode), is_oom=False)
    found = disease_of_dead([death] * times, FORKED)
    assert found is not None and found.code == code
    assert found.sample == "13"


def test_a_stack_becomes_places_with_their_source() -> None:
    (stack,) = parse('Stack (most recent call first):\n  File "/home/me/data.py", line 57 in __getitem__\n')
    assert as_places(stack, lambda file, line: f"{file} {line}") == (
        Place("/home/me/data.py", 57, "__getitem__", "/home/me/data.py 57"),
    )
