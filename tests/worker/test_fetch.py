"""Indices → samples → batch."""

from typing import Any

import pytest
import torch
from torch.utils.data import default_collate, default_convert
from torch.utils.data._utils import collate as torch_collate

from antifreeze.engine.arena.board import Step, create
from antifreeze.engine.worker import collate
from antifreeze.engine.worker.fetch import Fetcher
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.stopwatch import Stopwatch


def fetcher(
    dataset: Any, *, collate_fn: Any = default_collate, batched: bool = True, room: Any = None, pulse: Any = None
) -> Fetcher:
    recipe = Recipe(
        dataset=dataset,
        collate_fn=collate_fn,
        auto_collation=batched,
        worker_init_fn=None,
        base_seed=0,
        num_workers=1,
        worker_threads=1,
    )
    board = create()
    board.close()
    return Fetcher(recipe, room or (lambda *_: None), pulse or board.pulse, Stopwatch(board))


class AtOnce:
    """A dataset that fetches whole batches."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __getitem__(self, index: int) -> int:
        raise AssertionError("one at a time")

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.asked.append(indices)
        return [10 * index for index in indices]


def test_a_batch_is_fetched_sample_by_sample_and_collated() -> None:
    assert fetcher([5, 6, 7]).fetch([2, 0]).tolist() == [7, 5]


def test_a_dataset_that_can_is_asked_for_the_whole_batch() -> None:
    dataset = AtOnce()
    assert fetcher(dataset).fetch([1, 2]).tolist() == [10, 20]
    assert dataset.asked == [[1, 2]]


def test_a_dataset_whose_getitems_is_none_is_asked_one_by_one() -> None:
    class Dataset(list[int]):
        __getitems__ = None

    assert fetcher(Dataset([5, 6])).fetch([1]).tolist() == [6]


def test_without_batching_the_index_is_given_to_the_dataset_as_it_is() -> None:
    assert fetcher({"a": 5}, collate_fn=default_convert, batched=False).fetch("a") == 5


def test_the_users_collate_function_gets_the_samples() -> None:
    assert fetcher([5, 6], collate_fn=lambda samples: samples).fetch([0, 1]) == [5, 6]


def test_the_slot_is_there_for_the_loaders_own_default_collate_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_collate, "default_collate_fn_map", dict(torch_collate.default_collate_fn_map))
    collate.take_over()
    asked: list[str] = []
    now = "own"

    class Dataset:
        def __getitem__(self, index: int) -> Any:
            nonlocal now
            now = "the dataset's"
            default_collate([torch.zeros(3)])
            now = "own"
            return torch.zeros(3)

    def room(*_: Any) -> None:
        asked.append(now)

    def own(samples: Any) -> Any:
        return default_collate(samples)

    fetcher(Dataset(), room=room).fetch([0, 1])
    assert asked == ["own"]
    fetcher(Dataset(), room=room, collate_fn=own).fetch([0, 1])
    assert asked == ["own"]


def test_the_pulse_says_which_sample_is_being_fetched_and_when_it_is_collated() -> None:
    pulse = memoryview(bytearray(64)).cast("q")
    seen = []

    class Dataset:
        def __getitem__(self, index: int) -> int:
            seen.append(pulse[2] - 1)
            return index

    def own(samples: list[int]) -> list[int]:
        seen.append(pulse[0])
        return samples

    fetcher(Dataset(), collate_fn=own, pulse=pulse).fetch([7, 8, 9])
    assert seen == [0, 1, 2, Step.COLLATING]


def test_whatever_user_code_raises_passes_through() -> None:
    with pytest.raises(IndexError) as caught:
        fetcher([1, 2]).fetch([5])
    assert not getattr(caught.value, "__notes__", [])


def test_none_samples_are_named() -> None:
    dataset = [None if index % 2 else index for index in range(20)]
    with pytest.raises(TypeError) as caught:
        fetcher(dataset).fetch([1, 3, 5, 7, 9, 11, 2])
    (note,) = caught.value.__notes__
    assert "None for 6 of 7 samples of this batch: index 1, 3, 5, 7, 9, …." in note


def test_an_error_of_collating_that_has_nothing_to_do_with_none_has_no_note() -> None:
    with pytest.raises(RuntimeError) as caught:
        fetcher([torch.zeros(2), torch.zeros(3)]).fetch([0, 1])
    assert not getattr(caught.value, "__notes__", [])
