"""A packed sequence gives back what went in, whatever it is, and takes little more memory than the bytes of it."""

import copy
import os
import pickle
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antifreeze import CannotCross, packed
from antifreeze.packing import Packed

WORDS = ["", "a", "ä€😀", "x" * 3000, "\udcff from os.fsdecode"]
ANNOTATION = {"id": 7, "bbox": [1.5, 2.0, 3.0, 4.0], "iscrowd": 0, "caption": "a dog"}


class Colour(StrEnum):
    RED = "red"


class Words(str):
    pass


@dataclass
class Box:
    left: int
    name: str


KINDS: dict[str, list[Any]] = {
    "str": WORDS,
    "bytes": [b"", b"\0\xff", b"y" * 3000],
    "ints": [0, -1, 2**63 - 1, -(2**63)],
    "large ints": [1, 2**63, -(2**200)],
    "floats": [0.0, -0.0, 1e308, float("inf")],
    "ints, then others": [1, 2, "three", None],
    "floats, then an int": [1.0, 2],
    "bools": [True, False],
    "dicts": [ANNOTATION, {**ANNOTATION, "id": 8}, {}, {"other": 1}, {1: "one"}, {Colour.RED: 1}, {"red": 2}],
    "nested": [{"image": {"path": "a.jpg", "boxes": [(1, 2), (3, 4)]}, "tags": {"x", "y"}}],
    "tuples": [("a.jpg", 1), ("b.jpg", None), ()],
    "objects": [Box(1, "a"), Box(2, "b"), Colour.RED, {"box": Box(3, "c")}, Words("w"), np.float64(2.5)],
    "of every kind": [None, "a", b"b", 1, 2.5, (1,), {"k": 1}, Box(1, "x"), [], True],
    "nothing": [],
}


@pytest.mark.parametrize("elements", KINDS.values(), ids=KINDS)
def test_what_comes_out_is_what_went_in(elements: list[Any]) -> None:
    sequence = packed(elements)
    assert list(sequence) == elements
    assert [type(element) for element in sequence] == [type(element) for element in elements]
    assert [sequence[index] for index in range(len(elements))] == elements


def test_keys_of_dicts_keep_their_order_and_their_type() -> None:
    elements = [{"a": 1, "b": 2}, {"b": 1, "a": 2}, {Colour.RED: 3}, {"red": 4}]
    sequence = packed(elements)
    assert [list(element.items()) for element in sequence] == [list(element.items()) for element in elements]
    assert [type(next(iter(element))) for element in sequence] == [str, str, Colour, str]


def test_more_sets_of_keys_than_are_shared_are_no_trouble() -> None:
    elements = [{f"key {number}": number} for number in range(600)] * 2
    assert packed(elements) == elements


@given(st.lists(st.one_of(st.text(), st.binary(), st.integers(), st.booleans(), st.none(), st.lists(st.text()))))
def test_any_mixture_of_plain_data_comes_out_as_it_went_in(elements: list[Any]) -> None:
    assert list(packed(elements)) == elements


@pytest.mark.parametrize("elements", [list(range(50)), [str(number) for number in range(50)]], ids=["ints", "texts"])
def test_it_is_indexed_and_sliced_like_a_list(elements: list[Any]) -> None:
    sequence = packed(elements)
    for index in (0, 49, -1, -50, np.int64(7), torch.tensor(3), True):
        assert sequence[index] == elements[index]
    for part in (slice(5), slice(-7, None), slice(None, None, -1), slice(40, 3, -6), slice(60, 70)):
        assert list(sequence[part]) == elements[part]
        assert list(reversed(sequence[part])) == elements[part][::-1]
    assert sequence[10:40][::3][-1] == elements[10:40][::3][-1]
    assert elements[7] in sequence and "nowhere" not in sequence
    assert sequence.index(elements[9]) == 9 and sequence.count(elements[9]) == 1


@pytest.mark.parametrize("index", [50, -51, np.int64(50)])
def test_an_index_out_of_range_is_an_index_error_that_says_how_many_there_are(index: Any) -> None:
    with pytest.raises(IndexError, match="there are 50 elements"):
        packed(range(50))[index]


@pytest.mark.parametrize("index", ["1", 1.0, None])
def test_what_is_no_index_is_a_type_error(index: Any) -> None:
    with pytest.raises(TypeError):
        packed(["a", "b"])[index]


def test_it_is_equal_to_what_has_the_same_elements() -> None:
    sequence = packed(WORDS)
    assert sequence == WORDS
    assert WORDS.__eq__(sequence) is NotImplemented  # so that ours is asked
    assert sequence == tuple(WORDS) and sequence == packed(iter(WORDS)) and sequence[1:] == WORDS[1:]
    assert sequence != WORDS[1:] and sequence != [*WORDS[:-1], "other"] and sequence != "text"
    with pytest.raises(TypeError, match="unhashable"):
        hash(sequence)


def test_it_cannot_be_changed_and_elements_are_new_each_time() -> None:
    sequence = packed([ANNOTATION])
    sequence[0]["bbox"].append(5.0)
    assert sequence[0] == ANNOTATION
    with pytest.raises(TypeError):
        sequence[0] = {}  # type: ignore[index]


def test_it_says_what_it_is() -> None:
    assert repr(packed(range(1000))) == "<packed: 1,000 elements in 8,000 bytes of shared memory>"


def test_an_element_that_cannot_be_pickled_is_named_by_its_position() -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(CannotCross) as caught:
        packed([{"f": 1}, {"f": lambda: None}])
    assert caught.value.where == "element 1, of type builtins.dict"
    assert "lambda" in str(caught.value.why)
    assert os.listdir("/proc/self/fd") == before


def test_an_error_of_the_iterable_passes_through() -> None:
    def elements() -> Iterator[int]:
        yield 1
        raise KeyError("of the user's")

    with pytest.raises(KeyError, match="of the user's"):
        packed(elements())


def test_building_from_a_generator_takes_no_memory_but_that_of_the_result() -> None:
    count = 20_000
    packed(["warm", "up"])
    tracemalloc.start()
    try:
        sequence = packed(f"{number:0200}" for number in range(count))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sequence.nbytes == count * (201 + 8) + 8
    # Python's own memory: chunks that are written, and the table of ends; a list of these texts takes five megabytes.
    assert peak < 3.5e6


def test_dicts_that_have_the_same_keys_do_not_repeat_them() -> None:
    elements = [{**ANNOTATION, "id": number} for number in range(1000)]
    assert packed(elements).nbytes < 0.8 * sum(len(pickle.dumps(element, 5)) for element in elements)


@pytest.mark.parametrize("elements", KINDS.values(), ids=KINDS)
def test_it_survives_any_pickle_and_a_slice_of_it_too(elements: list[Any]) -> None:
    sequence = packed(elements)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        whole, part = pickle.loads(pickle.dumps((sequence, sequence[1:]), protocol))
        assert isinstance(whole, Packed) and whole == elements and part == elements[1:]


def test_copies_share_the_memory() -> None:
    sequence = packed(WORDS)
    before = os.listdir("/proc/self/fd")
    copies = [copy.copy(sequence), copy.deepcopy({"dataset": [sequence]})["dataset"][0]]
    assert all(each == sequence for each in copies)
    assert os.listdir("/proc/self/fd") == before


def test_its_descriptors_go_with_it_and_are_not_inherited_by_programs() -> None:
    before = set(os.listdir("/proc/self/fd"))
    sequence = packed(WORDS)
    ours = [int(name) for name in set(os.listdir("/proc/self/fd")) - before if os.path.exists(f"/proc/self/fd/{name}")]
    assert len(ours) == 2 and not any(os.get_inheritable(fd) for fd in ours)
    del sequence
    assert set(os.listdir("/proc/self/fd")) == before


def test_reading_in_any_order_gives_the_same() -> None:
    elements = [f"text {number}" for number in range(100_000)]
    sequence = packed(elements)
    places = random.Random(1).sample(range(len(elements)), 1000)
    assert [sequence[place] for place in places] == [elements[place] for place in places]


@pytest.mark.long
@pytest.mark.parametrize("make", [iter, reversed])
def test_an_iterator_outlives_the_sequence(make: Any) -> None:
    # In a process of its own: what is read from memory that is gone ends it.
    script = f"""
import antifreeze
rest = {make.__name__}(antifreeze.packed(range(100_000)))
print(sum(rest))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stdout) == (0, "4999950000\n"), done.stderr
