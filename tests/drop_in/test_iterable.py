"""Iterable datasets: every item once, in torch's order, with torch's draws."""

import inspect
import time
import warnings
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

from drop_in.harness import Maker, Way, assert_same, our_way
from drop_in.streams import Failing, Halves, Nones, Refusing, Shares, Sized


def passes_of(dataset: Any, passes: int = 2, **options: Any) -> Any:
    """A case: all batches of several passes of one loader."""

    def case(make: Maker) -> Any:
        loader = make(dataset, **options)
        return [list(loader) for _ in range(passes)]

    return case


STREAMS: dict[str, dict[str, Any]] = {
    "batches": {"batch_size": 3},
    "batches of one": {},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "batch_size None": {"batch_size": None},
    "kept workers": {"batch_size": 3, "persistent_workers": True},
    "kept workers, batch_size None": {"batch_size": None, "persistent_workers": True},
    "one batch ahead": {"batch_size": 2, "prefetch_factor": 1},
    "many batches ahead": {"batch_size": 2, "prefetch_factor": 9},
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("options", STREAMS.values(), ids=STREAMS.keys())
@pytest.mark.parametrize("lengths", [(7, 7), (2, 11, 5), (0, 4), (0, 0), (5,)], ids=str)
def test_workers_take_turns_until_their_streams_end(lengths: tuple[int, ...], options: dict[str, Any]) -> None:
    assert_same(our_way("grown"), passes_of(Shares(*lengths), num_workers=len(lengths), **options))


def test_the_same_on_a_clean_stem() -> None:
    assert_same(our_way("clean"), passes_of(Shares(4, 9), batch_size=3, persistent_workers=True))


@pytest.mark.parametrize("kept", [False, True])
def test_a_pass_that_is_broken_off_costs_the_next_one_nothing(kept: bool) -> None:
    def case(make: Maker) -> Any:
        loader = make(Shares(9, 30), batch_size=2, persistent_workers=kept)
        first = next(iter(loader))
        return [first, list(loader), list(loader)]

    assert_same(our_way("grown"), case)


def test_a_length_that_is_exceeded_is_warned_of_in_torchs_words(ours: Way) -> None:
    def case(make: Maker) -> Any:
        loader = make(Sized(4, 4), batch_size=2)
        said = [len(loader)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batches = list(loader)
        texts = [str(each.message) for each in caught if "was reported to be" in str(each.message)]
        return said, batches, [text.partition("but")[2] for text in texts]

    _, _, texts = assert_same(ours, case)
    assert texts


def test_an_exception_is_raised_and_the_stream_goes_on_as_torchs_does() -> None:
    def case(make: Maker) -> Any:
        iterator = iter(make(Failing(4, 7), batch_size=2, num_workers=1))
        seen: list[Any] = []
        while True:
            try:
                seen.append(next(iterator))
            except StopIteration:
                return seen
            except ValueError as error:
                seen.append(str(error).splitlines()[-1])

    seen = assert_same(our_way("grown"), case)
    assert "ValueError: number 4 is bad" in seen


def test_a_stream_that_cannot_begin_is_an_error_with_its_type(ours: Way) -> None:
    with pytest.raises(KeyError, match="no such stream"):
        next(iter(ours.make(Refusing(), num_workers=1)))


@pytest.mark.parametrize("kept", [False, True])
def test_data_pipes_are_shuffled_and_shared_out_as_torch_does_it(kept: bool) -> None:
    def case(make: Maker) -> Any:
        pipe = IterableWrapper(range(20)).shuffle().sharding_filter()
        loader = make(pipe, batch_size=3, shuffle=True, persistent_workers=kept)
        return [list(loader), list(loader)]

    assert_same(our_way("grown"), case)


def test_data_pipes_with_indices() -> None:
    assert_same(our_way("grown"), passes_of(SequenceWrapper(list(range(9))), batch_size=2))


# --- policies


def numbers_of(loader: Any) -> list[int]:
    return [int(number) for batch in loader for number in batch]


def test_what_fails_in_a_stream_is_skipped_if_the_user_wants_that() -> None:
    loader = our_way("grown").make(Failing(4, 7), batch_size=3, num_workers=1, on_error="skip", max_lost=5)
    assert numbers_of(loader) == [0, 1, 2, 3, 5, 6, 8, 9, 10, 11]
    assert [record.kind for record in loader.ledger] == ["sample-skipped", "sample-skipped"]


def test_a_generator_that_raised_is_at_its_end_and_that_is_never_skipped() -> None:
    loader = our_way("grown").make(Failing(4, is_generator=True), batch_size=3, num_workers=1, on_error="skip")
    with pytest.raises(ValueError, match="number 4 is bad") as caught:
        list(loader)
    assert "a generator ends with the exception" in str(caught.value)


def test_an_exception_behind_which_nothing_comes_is_never_skipped() -> None:
    loader = our_way("grown").make(Failing(11), batch_size=3, num_workers=1, on_error="skip")
    with pytest.raises(ValueError, match="number 11 is bad"):
        list(loader)


def test_none_in_a_stream_is_named_or_skipped() -> None:
    make = our_way("grown").make
    with pytest.raises(RuntimeError, match="returned None for 1 of 2 samples of this batch: index 1"):
        list(make(Nones(), batch_size=2, num_workers=1))
    assert numbers_of(make(Nones(), batch_size=2, num_workers=1, on_error="skip", max_lost=5)) == [1, 3, 4]


# --- in_order=False


def test_out_of_order_every_batch_comes_once(ours: Way) -> None:
    loader = ours.make(Halves(40), batch_size=3, in_order=False)
    for _ in range(2):
        assert sorted(numbers_of(loader)) == list(range(40))
    loader = ours.make(
        list(range(40)), batch_size=3, in_order=False, persistent_workers=True, collate_fn=default_collate
    )
    for _ in range(2):
        assert sorted(numbers_of(loader)) == list(range(40))


class Gated(torch.utils.data.Dataset[int]):
    """Sample 0 waits until all others have been fetched."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.fetched = torch.zeros(length, dtype=torch.bool).share_memory_()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        deadline = time.monotonic() + 20
        # Of the worker's own next batch nobody can be asked before this one is done.
        while index == 0 and not self.fetched[[1, *range(3, self.length)]].all() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.fetched[index] = True
        return index


def test_out_of_order_a_slow_batch_holds_up_only_what_its_worker_had_been_given() -> None:
    def case(make: Maker) -> Any:
        loader = make(Gated(10), in_order=False, prefetch_factor=2)
        batches = [int(batch) for batch in loader]
        return batches[:7], sorted(
            batches[7:]
        )  # the slow one goes on as soon as the last is fetched: either may come first

    # An older torch, 2.6 for one, gives every worker its turn, also one that has not begun what it was given.
    is_torchs_own_way = "_workers_num_tasks" in inspect.getsource(torch.utils.data.dataloader)
    seen = assert_same(our_way("grown"), case) if is_torchs_own_way else case(our_way("grown").make)
    assert seen == ([1, 3, 4, 5, 6, 7, 8], [0, 2, 9])
