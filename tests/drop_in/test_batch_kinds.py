"""One of everything that a batch can be made of, through torch's loader and through ours: the portraits are equal.

Each kind goes small and large, alone and beside a large tensor, for the first time and again, through plain pickle and
through the one that takes its place once a batch held something without a name, as it is, converted and collated.
torch's loader says what is expected; where it hangs, breaks off or delivers rubbish (`kinds.BEYOND_TORCH`,
`TORCH_IS_WRONG`), the dataset does.
"""

import warnings
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest

from drop_in.harness import SELFTEST, TORCH, Way, our_way, tidy_up, torch_may_fork
from drop_in.kinds import BEYOND_TORCH, KINDS, LARGE, SMALL, Index, Kinds, as_it_is
from drop_in.portrait import Fact, Portrait, Raised, differences, portrait_of_next

TORCH_IS_WRONG = {
    "tensor: conjugated": "forgets the conjugation, and so delivers other numbers",
    "tensor: negated": "forgets the sign",
    "tensor: quantized": "delivers a tensor without scale, whose every use is an internal error",
    "tensor: quantized, 32 bits": "the same",
    "tensor: quantized per channel": "the same",
    "tensor: wrapper": "collates it into a plain tensor that nobody has written into",
    "alias: tensor and array": "moves the tensor away under the array, which then shows freed memory",
}
UNLIMITED = {"container: 500 levels", "container: parts of themselves"}
"""Converting or collating them is a matter of how deep the stack may be."""
SLOW = {"tensor: meta"}
"""torch imports its compiler to stack them."""
HUNG = {f"beyond torch: {name}" for name in BEYOND_TORCH}
SOMETHING_WITHOUT_A_NAME = Index("beyond torch: a lambda", SMALL, "as it is")

FORMS = {
    "as it is": (set(KINDS), (SMALL, LARGE)),
    "for the third time": (
        {name for name in KINDS if name.startswith(("container", "tensor", "alias"))},
        (SMALL, LARGE),
    ),
    "beside a large tensor": (set(KINDS), (SMALL,)),
    "after a lambda": (set(KINDS), (SMALL,)),
    "converted": (set(KINDS) - HUNG - UNLIMITED, (SMALL,)),
    "collated": (set(KINDS) - HUNG - UNLIMITED - SLOW, (SMALL, LARGE)),
}
"""How a kind goes through a loader, which kinds do, and in which sizes."""

HISTORY = {"leaf", "view"}
"""What a tensor's past says about it, and not its contents."""

Seen = Portrait | Raised


def indices_of(*forms: str, kinds: set[str]) -> list[Index]:
    """What to ask for. Large values and containers are not collated: each of their elements would become a tensor."""
    every = (Index(name, size, form) for form in forms for name in KINDS for size in FORMS[form][1])
    return [
        index
        for index in every
        if index.name in FORMS[index.form][0] & kinds
        and not (index.form == "collated" and index.size == LARGE and index.name.startswith(("value", "container")))
    ]


def one_by_one(way: Way, indices: list[Index], *, workers: int) -> list[Seen]:
    """Every sample a batch."""
    return look(way, indices, lambda rest: {"sampler": rest, "batch_size": None, "collate_fn": as_it_is}, workers)


def two_by_two(way: Way, indices: list[Index], *, workers: int) -> list[Seen]:
    """Every sample twice, and torch's own collate function."""
    return look(way, indices, lambda rest: {"batch_sampler": [[index, index] for index in rest]}, workers)


def look(way: Way, indices: list[Index], options: Callable[[list[Index]], dict[str, Any]], workers: int) -> list[Seen]:
    """The portraits of all that is asked for; a worker that is lost is the fault of one batch alone."""
    seen: list[Seen] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # workers inherit that, too
        while len(seen) < len(indices):
            rest = indices[len(seen) :]
            batches = iter(way.make(Kinds(), num_workers=workers, **options(rest)))
            for index, following in zip_longest(rest, rest[1:]):
                seen.append(portrait_of_next(batches, storages=True, briefly=index == following))
                if is_loss(seen[-1]):
                    break
            if is_loss(seen[-1]) and workers > 1:
                seen.pop()  # with one worker it is clear which batch it was
                workers = 1
    return seen


def is_loss(seen: Seen) -> bool:
    return isinstance(seen, Raised) and "Worker" in seen.kind.__name__


class Album:
    """The portraits of all kinds, made when they are first asked for."""

    def __init__(self) -> None:
        self._albums: dict[str, dict[Index, Seen]] = {}

    def torchs(self, index: Index) -> Seen:
        if "torch" not in self._albums:
            kinds = set(KINDS) - HUNG - set(TORCH_IS_WRONG)
            with torch_may_fork():
                self._albums["torch"] = self._both(
                    TORCH,
                    indices_of("as it is", "converted", kinds=kinds),
                    indices_of("collated", kinds=kinds),
                    workers=2,
                )
            tidy_up()
        form = index.form if index.form in ("converted", "collated") else "as it is"
        return self._albums["torch"][index._replace(form=form)]

    def ours(self, stem: str, index: Index) -> Seen:
        if stem not in self._albums:
            self._albums[stem] = self._look_at_ours(our_way(stem))
        return self._albums[stem][index]

    @staticmethod
    def _look_at_ours(way: Way) -> dict[Index, Seen]:
        kinds = set(KINDS) - (HUNG | set(TORCH_IS_WRONG) if SELFTEST else set())
        plain = indices_of("as it is", "beside a large tensor", "converted", kinds=kinds - HUNG)
        again = thrice(indices_of("for the third time", kinds=kinds))
        nameless = indices_of("as it is", "beside a large tensor", kinds=kinds & HUNG)
        between = [] if SELFTEST else [SOMETHING_WITHOUT_A_NAME]
        after = indices_of("after a lambda", kinds=kinds)
        single = [*plain, *again, *between, *after, *nameless]
        arrays = {name for name in KINDS if name.startswith("array")}
        double = [*indices_of("collated", kinds=kinds & arrays), *thrice(indices_of("collated", kinds=kinds - arrays))]
        return Album._both(way, single, double, workers=1)

    @staticmethod
    def _both(way: Way, single: list[Index], double: list[Index], *, workers: int) -> dict[Index, Seen]:
        seen = [*one_by_one(way, single, workers=workers), *two_by_two(way, double, workers=workers)]
        return dict(zip([*single, *double], seen, strict=True))  # the last of several counts


def thrice(indices: list[Index]) -> list[Index]:
    """A loader may have learned what to expect by then; there is one worker, so that it can."""
    return [index for index in indices for _ in range(3)]


@pytest.fixture(scope="module")
def album() -> Album:
    return Album()


@pytest.mark.long
@pytest.mark.parametrize("stem", ["grown", "clean"])
@pytest.mark.parametrize("group", ["value", "container", "array", "tensor", "alias"])
def test_every_kind_arrives_as_torch_delivers_it(album: Album, group: str, stem: str) -> None:
    found = []
    kinds = {name for name in KINDS if name.startswith(group)} - (set(TORCH_IS_WRONG) if SELFTEST else set())
    for index in indices_of(*FORMS, kinds=kinds):
        seen = alone(album.ours(stem, index), index)
        expected = as_made(index) if index.name in TORCH_IS_WRONG else album.torchs(index)
        if isinstance(expected, Raised) and not isinstance(seen, Raised):
            expected = as_made(index)  # torch's workers cannot, ours can
        found += [f"{', '.join(map(str, index))}: {line}" for line in unlike(expected, seen)[:2]]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("stem", ["grown", "clean"])
def test_tensors_on_one_storage_arrive_on_one_storage(album: Album, stem: str) -> None:
    """Even those that share no byte: what copies a batch (`deepcopy`, `torch.save`) goes by storages."""
    found = []
    for index in indices_of("as it is", "after a lambda", kinds=set(KINDS) - HUNG - set(TORCH_IS_WRONG)):
        both = album.torchs(index), alone(album.ours(stem, index), index)
        if not any(isinstance(seen, Raised) for seen in both):
            storages = ([fact for fact in seen if fact.aspect == "storage"] for seen in both)
            found += [f"{', '.join(map(str, index))}: {line}" for line in differences(*storages)[:4]]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.usefixtures("not_for_torch")
@pytest.mark.long(but=1)
@pytest.mark.parametrize("stem", ["grown", "clean"])
def test_where_torch_hangs_it_arrives_as_it_was_made(album: Album, stem: str) -> None:
    found = []
    for index in indices_of(*FORMS, kinds=HUNG):
        seen = alone(album.ours(stem, index), index)
        found += [f"{', '.join(map(str, index))}: {line}" for line in unlike(as_made(index), seen)[:2]]
    assert not found, "\n" + "\n".join(found)


def as_made(index: Index) -> Seen:
    """What there would be without workers."""
    if index.form == "collated":
        (made,) = two_by_two(TORCH, [index], workers=0)
    else:
        made = alone(one_by_one(TORCH, [index], workers=0)[0], index)
    if isinstance(made, Raised):
        return made
    # What depends on a graph in another process, or is a view there, is not here; an array goes without its tensor.
    without = {*HISTORY, *(["memory"] if index.name == "alias: tensor and array" else [])}
    return [fact for fact in made if fact.aspect not in without]


def alone(seen: Seen, index: Index) -> Seen:
    """The portrait of what was asked for, without the large tensor beside it."""
    if isinstance(seen, Raised) or index.form != "beside a large tensor":
        return seen
    return [renamed(fact, "batch[0]") for fact in seen if fact.path.startswith("batch[0]")]


def renamed(fact: Fact, prefix: str) -> Fact:
    value = fact.value.replace(prefix, "batch", 1) if fact.aspect in ("is", "memory") else fact.value
    return fact._replace(path=fact.path.replace(prefix, "batch", 1), value=value)


def unlike(expected: Seen, seen: Seen) -> list[str]:
    if not isinstance(expected, Raised) and not isinstance(seen, Raised):
        ignored = {"storage", *(HISTORY - {fact.aspect for fact in expected})}
        return differences(*([fact for fact in each if fact.aspect not in ignored] for each in (expected, seen)))
    if isinstance(expected, Raised) and isinstance(seen, Raised) and seen.is_like(expected):
        return []
    shown = [what if isinstance(what, Raised) else "a batch" for what in (seen, expected)]
    return ["{} instead of {}".format(*shown)]
