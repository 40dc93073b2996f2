"""The sampler is advanced exactly when torch advances it."""

from typing import Any

import pytest

from drop_in.datasets import Interrupted, Numbers, Watched
from drop_in.harness import Maker, Way, assert_same, outcome


def watch(make: Maker, sampler: Watched, **options: Any) -> list[Any]:
    """How often the sampler was begun and how many indices it gave, after each step of two epochs."""
    loader = make(Numbers(sampler.length), sampler=sampler, **options)
    seen: list[Any] = [("built", sampler.begun, sampler.taken)]
    for _ in range(2):
        batches = iter(loader)
        seen.append(("iter", sampler.begun, sampler.taken))
        for batch in batches:
            seen.append((batch, sampler.begun, sampler.taken))
        seen.append(("end", sampler.begun, sampler.taken))
    return seen


@pytest.mark.long(but=3)
@pytest.mark.parametrize(
    ("batch_size", "prefetch", "persistent"), [(1, 2, False), (4, 1, True), (4, 5, False), (None, 2, True)]
)
def test_indices_are_taken_when_torch_takes_them(
    ours: Way, batch_size: int | None, prefetch: int, persistent: bool
) -> None:
    options = {"batch_size": batch_size, "prefetch_factor": prefetch, "persistent_workers": persistent}
    assert_same(ours, lambda make: watch(make, Watched(19), **options))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_indices_are_taken_as_torch_does_for_any_number_of_workers(ours: Way, workers: int) -> None:
    assert_same(ours, lambda make: watch(make, Watched(19), batch_size=2, num_workers=workers))


def test_nothing_is_taken_beyond_the_window_after_a_break(ours: Way) -> None:
    def case(make: Maker) -> Any:
        sampler = Watched(50)
        for batch in make(Numbers(50), sampler=sampler, batch_size=2):
            if 6 in batch.tolist():
                break
        return sampler.begun, sampler.taken

    assert_same(ours, case)


@pytest.mark.parametrize("at", [0, 5, 14])
def test_an_error_of_the_sampler_comes_at_the_same_step(ours: Way, at: int) -> None:
    """Index 0 and 5 fail while the window is filled, 14 in mid-epoch."""

    def case(make: Maker) -> Any:
        loader = make(Numbers(30), sampler=Interrupted(30, at=at), batch_size=1)
        kind, batches = outcome(lambda: iter(loader))
        if kind == "raised":
            return batches
        steps = []
        while not steps or steps[-1][0] == "value":
            steps.append(outcome(lambda: next(batches)))
        return steps

    assert_same(ours, case)
