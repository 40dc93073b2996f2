"""Exceptions of user code arrive with torch's type and text, and iteration goes on as torch's does."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from drop_in import datasets
from drop_in.datasets import ERRORS, Numbers, Rejecting
from drop_in.harness import Maker, Way, assert_same, our_way, outcome


def outcomes(batches: Any) -> list[Any]:
    """Every batch or error until the end of the epoch."""
    seen = []
    while not seen or seen[-1] != ("raised", (StopIteration, "", "")):
        seen.append(outcome(lambda: next(batches)))
        assert len(seen) < 100
    return seen


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "error",
    [error for error in ERRORS if error not in (datasets.two_arguments, datasets.unicode_error)],
    ids=lambda error: error.__name__,
)
def test_an_error_of_the_dataset_has_torchs_type_and_text(ours: Way, error: Callable[[int], BaseException]) -> None:
    def case(make: Maker) -> Any:
        return outcomes(iter(make(Rejecting(12, bad=5, error=error), batch_size=2)))

    seen = assert_same(ours, case)
    assert [kind for kind, _ in seen] == ["value"] * 2 + ["raised"] + ["value"] * 3 + ["raised"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_an_error_without_workers_is_the_users_own(error: Callable[[int], BaseException]) -> None:
    def case(make: Maker) -> Any:
        return outcomes(iter(make(Rejecting(12, bad=5, error=error), batch_size=2, num_workers=0)))

    assert_same(our_way("default"), case)


def test_an_error_that_cannot_be_built_from_its_text_keeps_its_type_where_torch_makes_it_a_runtime_error(
    ours: Way,
) -> None:
    def case(make: Maker) -> Any:
        seen = outcomes(iter(make(Rejecting(12, bad=5, error=datasets.two_arguments), batch_size=2)))
        kinds.append(seen[2][1][0])
        return [(kind, what[1:] if kind == "raised" else what) for kind, what in seen]

    kinds: list[type] = []
    assert_same(ours, case)
    assert datasets.TwoArguments in kinds  # and torch's own, where it runs in this process
    assert set(kinds) <= {RuntimeError, datasets.TwoArguments}


def test_an_error_whose_text_is_made_of_its_parts_is_itself_where_torch_makes_it_a_runtime_error(ours: Way) -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        list(ours.make(Rejecting(4, bad=1, error=datasets.unicode_error), batch_size=2))
    assert caught.value.object == b"\xff" and caught.value.reason == "sample 1"
    assert caught.value.__notes__[0].startswith("Caught UnicodeDecodeError in DataLoader worker process 0.\nOriginal")


def test_an_error_has_its_attributes_notes_and_cause(ours: Way) -> None:
    with pytest.raises(ValueError) as caught:
        list(ours.make(Rejecting(4, bad=1, error=datasets.telling), batch_size=2))
    error: Any = caught.value
    assert error.index == 1 and error.shape.tolist() == [1, 2]
    assert error.__notes__[0] == "a note"
    assert type(error.__cause__) is FileNotFoundError and error.__cause__.filename == "/data/1.png"


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, SystemExit])
def test_what_is_no_exception_ends_the_worker_and_is_torchs_error_with_the_sample(
    error: type[BaseException], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError) as caught:
        list(our_way("grown").make(Rejecting(4, bad=1, error=error), batch_size=2, num_workers=1))
    assert re.match(r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly", str(caught.value))  # torch's words
    assert "batch 0, sample 1" in str(caught.value)


def test_the_text_of_an_error_names_worker_and_place(ours: Way) -> None:
    batches = iter(ours.make(Rejecting(12, bad=3, error=datasets.value_error), batch_size=2))
    next(batches)
    with pytest.raises(ValueError) as caught:
        next(batches)
    text = str(caught.value)
    assert text.startswith(
        "Caught ValueError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
    )
    assert 'datasets.py", line' in text
    assert "in __getitem__" in text
    assert "raise self.error(index)" in text
    assert text.rstrip().endswith("ValueError: cannot decode sample 3")


def test_an_error_of_the_collate_function_has_torchs_type_and_text(ours: Way) -> None:
    def case(make: Maker) -> Any:
        return outcomes(iter(make(Numbers(12), batch_size=3, collate_fn=datasets.reject_batch)))

    seen = assert_same(ours, case)
    assert seen[1][1][0] is TypeError


def test_samples_that_cannot_be_stacked_are_torchs_error(ours: Way) -> None:
    def case(make: Maker) -> Any:
        kind, raised = outcome(lambda: list(make([1, "two", None, 4], batch_size=4)))
        return kind, raised[:2]

    assert_same(ours, case)


def test_an_error_of_worker_init_fn_is_raised_once_by_each_worker(ours: Way) -> None:
    def case(make: Maker) -> Any:
        batches = iter(make(Numbers(12), worker_init_fn=datasets.reject_worker))
        return [outcome(lambda: next(batches)) for _ in range(2)]

    seen = assert_same(ours, case)
    assert seen[1][1][2] == "RuntimeError: worker 1 does not start"


def test_every_sample_may_fail_and_every_failure_is_told(ours: Way) -> None:
    def case(make: Maker) -> Any:
        return outcomes(iter(make(Hopeless(6), batch_size=2)))

    assert len(assert_same(ours, case)) == 4


class Hopeless(Numbers):
    def __getitem__(self, index: int) -> int:
        raise NotImplementedError


def test_an_index_out_of_range_is_torchs_error(ours: Way) -> None:
    assert_same(ours, lambda make: outcomes(iter(make([1, 2, 3], batch_sampler=[[0], [7], [2]]))))


def test_persistent_workers_survive_an_error_of_the_dataset(ours: Way) -> None:
    def case(make: Maker) -> Any:
        loader = make(Rejecting(8, bad=1, error=datasets.key_error), batch_size=2, persistent_workers=True)
        return [outcomes(iter(loader)) for _ in range(3)]

    assert_same(ours, case)


class Unshowable:
    """An index whose `repr` raises."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Shown(Numbers):
    def __getitem__(self, index: Any) -> Any:
        if index.number == 5:
            raise ValueError("bad")
        return super().__getitem__(index.number)


def test_an_index_that_cannot_be_shown_does_not_hide_the_error(ours: Way) -> None:
    def case(make: Maker) -> Any:
        return outcomes(iter(make(Shown(12), batch_size=2, sampler=[Unshowable(number) for number in range(12)])))

    seen = assert_same(ours, case)
    assert [kind for kind, _ in seen] == ["value"] * 2 + ["raised"] + ["value"] * 3 + ["raised"]


def test_a_loader_that_may_fetch_nothing_ahead_is_torchs_error(ours: Way) -> None:
    with pytest.raises(AssertionError, match="prefetch_factor must be greater than 0"):
        iter(ours.make(Numbers(3), num_workers=1, prefetch_factor=0))
