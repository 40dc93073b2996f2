"""Batches whose structure changes from one to the next: none is taken for the one before."""

import copy
from typing import Any

import pytest
import torch

from drop_in.datasets import PlainBatches
from drop_in.harness import TORCH, Maker, Way, assert_same, our_way, tidy_up, torch_may_fork
from drop_in.kinds import LARGE, SMALL, as_it_is
from drop_in.lookalikes import FAMILIES, Lookalikes, Reused, Step, every_order, steps
from drop_in.portrait import Portrait, Raised, differences, portrait, portrait_of_next

Seen = Portrait | Raised
NOT_COLLATED = ("kinds of tensors", "lists of numbers")
"""The first are in `test_batch_kinds`; of the others torch would make hundreds of tensors, with a descriptor each."""


def one_by_one(way: Way, wanted: list[Step], *, workers: int) -> list[Seen]:
    options = {"batch_size": None, "collate_fn": as_it_is, "num_workers": workers}
    batches = iter(way.make(Lookalikes(), sampler=wanted, **options))
    return [portrait_of_next(batches) for _ in wanted]


def two_by_two(way: Way, wanted: list[Step], *, workers: int) -> list[Seen]:
    """Two of a kind, and now and then one or three, collated by torch's own function."""
    pairs = PlainBatches([[step] * (2, 2, 1, 3)[number % 4] for number, step in enumerate(wanted)])
    batches = iter(way.make(Lookalikes(), batch_sampler=pairs, num_workers=workers))
    return [portrait_of_next(batches) for _ in wanted]


class References:
    """What torch delivers for each step."""

    def __init__(self) -> None:
        self._single: dict[Step, Seen] = {}
        self._double: list[Seen] = []

    def single(self, step: Step) -> Seen:
        if not self._single:
            wanted = sorted(set(steps((SMALL, LARGE))))
            with torch_may_fork():
                self._single = dict(zip(wanted, one_by_one(TORCH, wanted, workers=2), strict=True))
            tidy_up()
        return self._single[step]

    def double(self) -> list[Seen]:
        if not self._double:
            with torch_may_fork():
                self._double = two_by_two(TORCH, list(steps((SMALL,), without=NOT_COLLATED)), workers=2)
            tidy_up()
        return self._double


@pytest.fixture(scope="module")
def references() -> References:
    return References()


@pytest.mark.long(but=1)
def test_batches_that_look_alike_are_told_apart(ours: Way, references: References) -> None:
    """With one worker, so that each batch follows the one before in the same process."""
    wanted = list(steps((SMALL, LARGE)))
    seen = one_by_one(ours, wanted, workers=1)
    assert_alike(wanted, [references.single(step) for step in wanted], seen)


def test_batches_that_look_alike_are_told_apart_when_small_and_large_ones_alternate(references: References) -> None:
    """With three workers: the batch that the trainer opened last came from another process."""
    wanted = []
    for family in FAMILIES:
        both = every_order(family, SMALL), every_order(family, LARGE)
        wanted += [step for pair in zip(*both, strict=False) for step in pair]
    seen = one_by_one(our_way("grown"), wanted, workers=3)
    assert_alike(wanted, [references.single(step) for step in wanted], seen)


def test_collated_batches_that_look_alike_are_told_apart(ours: Way, references: References) -> None:
    wanted = list(steps((SMALL,), without=NOT_COLLATED))
    assert_alike(wanted, references.double(), two_by_two(ours, wanted, workers=1))


def assert_alike(wanted: list[Step], expected: list[Seen], seen: list[Seen]) -> None:
    found = []
    for number, (step, want, have) in enumerate(zip(wanted, expected, seen, strict=True)):
        before = wanted[number - 1] if number else None
        found += [f"{step} after {before}: {line}" for line in unlike(want, have)[:3]]
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:40])


def unlike(expected: Seen, seen: Seen) -> list[str]:
    if not isinstance(expected, Raised) and not isinstance(seen, Raised):
        return differences(expected, seen)
    if isinstance(expected, Raised) and isinstance(seen, Raised) and seen.is_like(expected):
        return []
    shown = [what if isinstance(what, Raised) else "a batch" for what in (seen, expected)]
    return ["{} instead of {}".format(*shown)]


@pytest.mark.usefixtures("not_for_torch")
def test_objects_that_the_dataset_uses_again_are_looked_at_again(ours: Way) -> None:
    """torch's worker pickles a batch in another thread, while the dataset may be at the next."""
    twin = Reused()
    expected = [portrait(copy.deepcopy(twin[index])) for index in range(40)]
    batches = iter(ours.make(Reused(), sampler=range(40), batch_size=None, collate_fn=as_it_is, num_workers=1))
    seen = [portrait_of_next(batches) for _ in range(40)]
    found = [f"{number}: {line}" for number in range(40) for line in unlike(expected[number], seen[number])]
    assert not found, "\n".join(found)


class Fresh(Lookalikes):
    def __getitem__(self, index: Any) -> Any:
        return {"list": [1, {"deep": [2]}], "tensor": torch.ones(3), "set": {1}}


def test_containers_of_a_batch_are_its_own(ours: Way) -> None:
    """What the trainer does to the dicts and lists of a batch shows in no later one."""

    def case(make: Maker) -> Any:
        kept: list[Any] = []
        for batch in make(Fresh(), sampler=range(8), batch_size=None, collate_fn=as_it_is, num_workers=1):
            kept.append(copy.deepcopy(batch))
            batch["list"].append("mine")
            batch["list"][1]["deep"].clear()
            batch["set"].add("mine")
            batch["tensor"].fill_(-1)
            del batch["tensor"]
            batch["more"] = kept
        return kept

    assert_same(ours, case)


def test_mutable_parts_are_new_in_every_batch(ours: Way) -> None:
    wanted = [Step("mappings", 0, SMALL)] * 6
    batches = list(ours.make(Lookalikes(), sampler=wanted, batch_size=None, collate_fn=as_it_is, num_workers=1))
    assert len({id(batch) for batch in batches}) == 6
    assert len({id(batch["x"]) for batch in batches}) == 6
    assert len({batch["x"].data_ptr() for batch in batches}) == 6


class Hiccups(Lookalikes):
    """The same structure throughout, with an error of the dataset and something that cannot be sent in between."""

    def __getitem__(self, index: Any) -> Any:
        if index % 5 == 3:
            raise KeyError(index)
        batch = {"x": torch.full((5 + index % 2,), float(index)), "n": index}
        if index % 5 == 1:
            batch["x"] = torch.full((40_000 * index,), float(index))  # larger than any slot so far
        return batch


def test_errors_and_larger_batches_in_between_do_not_matter(ours: Way) -> None:
    batches = iter(ours.make(Hiccups(), sampler=range(25), batch_size=None, num_workers=1))
    for index in range(25):
        if index % 5 == 3:
            with pytest.raises(KeyError):
                next(batches)
            continue
        batch = next(batches)
        assert list(batch) == ["x", "n"] and batch["n"] == index
        assert batch["x"].shape == ((40_000 * index,) if index % 5 == 1 else (5 + index % 2,))
        assert bool((batch["x"] == index).all())


def test_the_last_batch_may_be_smaller(ours: Way) -> None:
    samples = [{"x": torch.full((4,), float(number)), "name": str(number), "n": number} for number in range(11)]
    assert_same(ours, lambda make: list(make(samples, batch_size=4, num_workers=1)))


class Deep(Lookalikes):
    """A tensor under many levels."""

    def __getitem__(self, depth: Any) -> Any:
        thing: Any = torch.tensor([depth])
        for level in range(depth):
            thing = [{"down": thing}, [thing], (thing,)][level % 3]
        return thing


@pytest.mark.long(but=1)
def test_structures_of_any_depth_that_pickle_allows_arrive_again_and_again(ours: Way) -> None:
    """Where the stack ends is another place in a worker than in the trainer, and another for each way to go down."""
    depths = [depth for depth in (50, 150, 250, 320, *range(400, 500, 8)) for _ in range(4)]
    batches = iter(ours.make(Deep(), sampler=depths, batch_size=None, collate_fn=as_it_is, num_workers=1))
    found = []
    for depth in depths:
        seen = portrait_of_next(batches)
        found += [f"{depth} levels: {line}" for line in unlike(portrait(Deep()[depth]), seen)[:1]]
    assert not found, "\n".join(found)


class Endless(Lookalikes):
    """Every number has a structure of its own."""

    def __getitem__(self, number: Any) -> Any:
        return {"x": torch.full((1 + number % 97,), float(number)), f"key {number}": [torch.tensor(number), number]}


@pytest.mark.long(but=1)
def test_more_structures_than_anybody_remembers_arrive_again_and_again(ours: Way) -> None:
    numbers = [number for start in range(0, 400, 100) for number in list(range(start, start + 100)) * 3] + [
        0,
        0,
        250,
        399,
    ]
    batches = ours.make(Endless(), sampler=numbers, batch_size=None, collate_fn=as_it_is, num_workers=1)
    for number, batch in zip(numbers, batches, strict=True):
        assert not differences(portrait(Endless()[number]), portrait(batch)), f"structure {number}"


def test_an_epoch_that_is_broken_off_takes_nothing_with_it_that_the_next_one_needs(ours: Way) -> None:
    """The batch with which a structure came for the first time may be one that nobody takes."""
    numbers = [7] * 6 + [8] * 4
    loader = ours.make(Endless(), sampler=numbers, batch_size=None, persistent_workers=True)
    for taken in (1, 2, 3, 4, 1, 7, 2, 10):
        for number, batch in zip(numbers[:taken], loader, strict=False):
            assert not differences(portrait(Endless()[number]), portrait(batch))


class Poor(Lookalikes):
    """The machine has no memory for the batch `first`, the first few times that the worker asks."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __getitem__(self, index: Any) -> Any:
        from antifreeze import machine

        if index == self.first:
            before, answers = machine.available_memory, iter([0, 0, 0])
            machine.available_memory = lambda: next(answers, before())
        return {"x": torch.full((50_000,), float(index)), "n": index}


@pytest.mark.usefixtures("not_for_torch")
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_a_batch_that_waits_for_memory_does_not_harm_the_next(first: int) -> None:
    options = {"batch_size": None, "num_workers": 1, "prefetch_factor": 6}
    loader = our_way("grown").make(Poor(first), sampler=range(12), **options)
    for index, batch in enumerate(loader):
        assert batch["n"] == index and bool((batch["x"] == index).all())
    assert index == 11
