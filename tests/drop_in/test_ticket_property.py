"""`seeding="ticket"`: whatever the loader, and whatever happens to its workers, batches are those of no workers at all."""

import dataclasses
import os
import random
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drop_in.examples import examples
from drop_in.harness import Way, assert_identical, generator_states, our_way, seed_all
from drop_in.random_samples import Drawing, InBatches

pytestmark = [pytest.mark.usefixtures("not_for_torch"), pytest.mark.deadline(examples.deadline_s)]


@dataclass(frozen=True, slots=True)
class Case:
    """A loader, and what happens to it."""

    length: int
    batch_size: int | None
    order: str
    persistent: bool
    prefetch: int
    in_order: bool
    slow: frozenset[int]
    fault: frozenset[int] | int
    """Samples that end the first worker that comes to them; or: after so many batches one of the workers is killed.

    Not both, for a sample at which two workers end is taken for the cause.
    """
    broken_off_after: int | None
    """After so many batches the first epoch is left."""
    draws: bool
    """Whether the program draws random numbers between batches."""

    @property
    def deadly(self) -> frozenset[int]:
        return self.fault if isinstance(self.fault, frozenset) else frozenset()


def cases() -> st.SearchStrategy[Case]:
    indices = st.frozensets(st.integers(0, 23), max_size=3)
    return st.builds(
        Case,
        length=st.integers(1, 24),
        batch_size=st.sampled_from([None, 1, 2, 3, 7]),
        order=st.sampled_from(["in turn", "shuffled", "in batches"]),
        persistent=st.booleans(),
        prefetch=st.integers(1, 3),
        in_order=st.sampled_from([True, True, True, False]),
        slow=indices,
        fault=indices | st.integers(0, 8),
        broken_off_after=st.none() | st.none() | st.integers(0, 8),
        draws=st.booleans(),
    )


def make(way: Way, case: Case, *, workers: int, folder: Path | None) -> Any:
    options: dict[str, Any] = {"num_workers": workers, "seeding": "ticket"}
    if workers:
        options |= {
            "persistent_workers": case.persistent,
            "prefetch_factor": case.prefetch,
            "in_order": case.in_order,
            "sample_timeout": 20,
        }
    if case.order == "in batches":
        options["batch_sampler"] = InBatches(case.length)
    else:
        options |= {"batch_size": case.batch_size, "shuffle": case.order == "shuffled"}
    return way.make(Drawing(case.length, folder=folder, deadly=case.deadly, slow=case.slow), **options)


def epochs_of(loader: Any, case: Case, *, is_hurt: bool) -> list[Any]:
    """What two epochs give, and how they leave the generators of the program."""
    seed_all()
    seen = []
    for epoch in range(2):
        batches = []
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            if epoch == 0 and number == case.broken_off_after:
                break
            batches.append(batch)
            if is_hurt and epoch == 0 and number == case.fault:
                os.kill(random.Random(number).choice(iterator._workers).pid, signal.SIGKILL)
            if case.draws:
                torch.rand(2), random.random()
        seen.append((batches, generator_states()))
        del iterator
    return seen


def in_plan_order(seen: list[Any], expected: list[Any]) -> list[Any]:
    """Batches that may come in any order, in the order in which they were planned."""
    sorted_epochs = []
    for (batches, states), (planned, _) in zip(seen, expected, strict=True):
        places = {str(batch[0]): place for place, batch in enumerate(planned)}
        sorted_epochs.append((sorted(batches, key=lambda batch: places[str(batch[0])]), states))
    return sorted_epochs


def check_equals_no_workers(way: Way, case: Case, workers: int) -> None:
    if not case.in_order:  # which batches came before the break would be a matter of chance
        case = dataclasses.replace(case, broken_off_after=None)
    with tempfile.TemporaryDirectory() as folder:
        expected = epochs_of(make(way, case, workers=0, folder=None), case, is_hurt=False)
        loader = make(way, case, workers=workers, folder=Path(folder))
        seen = epochs_of(loader, case, is_hurt=True)
        if loader._iterator is not None:
            loader._iterator._shutdown_workers()
        assert_identical(expected, seen if case.in_order else in_plan_order(seen, expected))


@pytest.mark.scan
@settings(deadline=None, max_examples=examples.count(24), suppress_health_check=examples.suppressed)
@given(case=cases(), workers=st.sampled_from([1, 2, 3, 5]))
def test_batches_are_those_of_no_workers_whatever_happens(case: Case, workers: int) -> None:
    check_equals_no_workers(our_way("grown"), case, workers)


@pytest.mark.scan
@settings(deadline=None, max_examples=examples.count(4), suppress_health_check=examples.suppressed)
@given(case=cases(), workers=st.sampled_from([1, 2]))
def test_batches_of_a_clean_stem_are_those_of_no_workers_whatever_happens(case: Case, workers: int) -> None:
    check_equals_no_workers(our_way("clean"), case, workers)
