"""What an object is and holds, without asking it."""

import functools
import random
import socket
import threading
from typing import Any, NoReturn

import pytest
import torch
from torch.utils.data import default_collate

from antifreeze.engine.crossing.reading import attributes_of, is_a, kept_apart, package_of


def test_a_proxy_is_itself() -> None:
    class Proxy:
        __class__ = property(lambda self: socket.socket)  # type: ignore[assignment]

    assert isinstance(Proxy(), socket.socket)
    assert not is_a(Proxy(), socket.socket)


def test_attributes_are_read_from_slots_and_dict() -> None:
    class Slotted:
        __slots__ = ("empty", "slot")

    class Both(Slotted):
        @property
        def asked(self) -> NoReturn:
            pytest.fail("a property was called")

    both = Both()
    both.slot, both.more = 1, 2
    assert attributes_of(both) == {"slot": 1, "more": 2}


@pytest.mark.parametrize(
    ("thing", "package"),
    [
        (torch, "torch"),
        (torch.nn.functional, "torch"),
        (torch.nn.Linear, "torch"),
        (torch.ones(1), "torch"),
        (default_collate, "torch"),
        (threading.Lock(), "_thread"),
        (type("Nameless", (), {"__module__": None}), ""),
    ],
)
def test_everything_comes_from_a_package(thing: Any, package: str) -> None:
    assert package_of(thing) == package


@pytest.mark.parametrize("cache", [functools.cache, functools.lru_cache, functools.lru_cache(maxsize=2)])
def test_the_results_of_a_cached_function_are_named_by_their_arguments_whichever_was_used_last(cache: Any) -> None:
    @cache
    def generator(name: Any, *others: Any) -> random.Random:
        return random.Random(str(name))

    one, other = generator("one"), generator("other", 7, threading)
    for last in (("one",), ("other", 7, threading), ("one",)):
        generator(*last)
        assert kept_apart(generator) == {"'one'": one, "('other', 7, module)": other}


def test_results_for_objects_of_one_class_have_the_order_in_which_they_were_made() -> None:
    @functools.lru_cache
    def generator(thing: Any) -> random.Random:
        return random.Random(id(thing))

    first, second = threading.Lock(), threading.Lock()
    made = [generator(first), generator(second)]
    generator(first)
    assert list(kept_apart(generator).values()) == made
