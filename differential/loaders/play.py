"""Plays a case and writes down what a user can see of it: the trace, a list of events (kind, text)."""

from __future__ import annotations

import gc
import itertools
import random
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from differential.loaders import parts
from differential.loaders.build import Built, build
from differential.loaders.case import Case, Step
from differential.loaders.datasets import SETTINGS, Items
from differential.loaders.portray import ADDRESS, digest_of_generator, portray, portray_error, portray_random_states

Event = tuple[str, str]
MAX_ERRORS = 3
MAX_BATCHES = 200
# Python 3.12 says so at each fork of torch's where libraries have threads; ours looks at the threads itself.
ABOUT_THREADS = re.compile(r"DeprecationWarning: This process \(pid=\d+\) is multi-threaded")


def play(case: Case, loader_class: type[DataLoader[Any]]) -> list[Event]:
    """Build the loader, go through all steps, and return the trace."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = list(Player(case, loader_class).play())
    said = (f"{each.category.__name__}: {ADDRESS.sub('0x', str(each.message))}" for each in caught)
    return trace + [("warning", text) for text in said if not ABOUT_THREADS.match(text)]


class Player:
    """Goes through the steps of a case."""

    def __init__(self, case: Case, loader_class: type[DataLoader[Any]]) -> None:
        self.case, self.loader_class = case, loader_class
        self.iterators: list[Any] = []

    def play(self) -> Iterator[Event]:
        draw_and_seed(self.case.seed)
        try:
            self.built = build(self.case, self.loader_class)
        except Exception as error:  # what a constructor raises is compared as well
            yield "error of the constructor", portray_error(error)
            return
        yield "length", self._length()
        for number, step in enumerate(self.case.steps):
            if isinstance(self.built.sampler, DistributedSampler):
                self.built.sampler.set_epoch(number)
            yield "step", str(step)
            yield from self._pass(step)
            self.iterators.clear()
            yield "generators", portray_generators(self.built)
            yield "dataset", portray_dataset(self.built.items)
            change(self.built, self.case, step, number)
        yield "length", self._length()

    def _pass(self, step: Step) -> Iterator[Event]:
        """One pass; under `in_order=False` its events come sorted."""
        events = self._guarded(WAYS[step.way](self, step))
        if self.case.is_unordered:
            yield from sorted(events)
        else:
            yield from events

    def _guarded(self, events: Iterator[Event]) -> Iterator[Event]:
        try:
            yield from events
        except Exception as error:  # of iter(): what next() raises is caught where it is called
            yield "error of the pass", portray_error(error)

    def _length(self) -> str:
        try:
            return str(len(self.built.loader))
        except Exception as error:  # a length that cannot be told is an error on torch, too
            return portray_error(error)

    def iterate(self) -> Any:
        """A new iterator over the loader, which is kept until the pass ends."""
        iterator = iter(self.built.loader)
        self.iterators.append(iterator)
        return iterator

    def take(self, iterator: Any, count: int = MAX_BATCHES, *, after: Callable[[Any], None] | None = None):
        """Take so many batches, or all; goes on after errors, as a user who catches them does."""
        errors = 0
        for _ in range(count):
            try:
                batch = next(iterator)
            except StopIteration:
                yield "end", ""
                return
            except Exception as error:  # any error of a batch is part of the trace
                yield "error", portray_error(error)
                errors += 1
                if errors > MAX_ERRORS:
                    return
                continue
            yield "batch", portray(batch)
            if after is not None:
                after(batch)


def _whole(player: Player, step: Step) -> Iterator[Event]:
    yield from player.take(player.iterate())


def _first(player: Player, step: Step) -> Iterator[Event]:
    yield from player.take(player.iterate(), 1)


def _broken_off(player: Player, step: Step) -> Iterator[Event]:
    yield from player.take(player.iterate(), step.batches)


def _interleaved(player: Player, step: Step) -> Iterator[Event]:
    is_kept = player.case.options.get("persistent_workers")  # then there is one iterator, which starts again
    iterators = [player.iterate() for _ in range(1 if is_kept else 2)]
    for iterator in itertools.islice(itertools.cycle(iterators), MAX_BATCHES):
        events = list(player.take(iterator, 1))
        yield from events
        if ("end", "") in events:
            return


def _with_draws(player: Player, step: Step) -> Iterator[Event]:
    yield from player.take(player.iterate(), after=lambda batch: draw_everywhere())


def _held(player: Player, step: Step) -> Iterator[Event]:
    """Batches that are held do not change, whatever comes after them."""
    held: list[Any] = []
    yield from player.take(player.iterate(), after=held.append)
    before = [portray(batch) for batch in held]
    player.iterators.clear()
    gc.collect()
    yield from player.take(player.iterate(), 3)
    yield "held", str([portray(batch) == portrait for batch, portrait in zip(held, before, strict=True)])


def _beside_a_second_loader(player: Player, step: Step) -> Iterator[Event]:
    first = player.iterate()
    yield from player.take(first, 2)
    second = player.loader_class(player.built.dataset, batch_size=2, num_workers=1, collate_fn=parts.keep_list)
    yield from player.take(iter(second), 2)
    yield from player.take(first)


def _beyond_the_end(player: Player, step: Step) -> Iterator[Event]:
    iterator = player.iterate()
    yield from player.take(iterator)
    yield from player.take(iterator, 2)


def _changed_in_place(player: Player, step: Step) -> Iterator[Event]:
    changed: list[str] = []

    def zero(batch: Any) -> None:
        if not player.case.lends_memory:
            set_to_zero(batch)
        changed.append(portray(batch))

    yield from player.take(player.iterate(), after=zero)
    for portrait in changed:
        yield "changed", portrait


def _taken_up_again(player: Player, step: Step) -> Iterator[Event]:
    iterator = player.iterate()
    yield from player.take(iterator, step.batches)
    again = iter(iterator)
    yield "same iterator", str(again is iterator)
    yield from player.take(again)


def _zipped(player: Player, step: Step) -> Iterator[Event]:
    if player.case.options.get("persistent_workers"):
        yield from player.take(player.iterate())
        return
    for first, second in zip(player.built.loader, player.built.loader, strict=True):
        yield "batch", portray(first)
        yield "batch", portray(second)


def _in_a_thread(player: Player, step: Step) -> Iterator[Event]:
    events: list[Event] = []
    thread = threading.Thread(target=lambda: events.extend(player._guarded(_whole(player, step))))
    thread.start()
    thread.join()
    yield from events


def _as_a_list(player: Player, step: Step) -> Iterator[Event]:
    for batch in list(player.built.loader):
        yield "batch", portray(batch)


WAYS: dict[str, Callable[[Player, Step], Iterator[Event]]] = {
    "whole": _whole,
    "first": _first,
    "broken off": _broken_off,
    "interleaved": _interleaved,
    "with draws": _with_draws,
    "held": _held,
    "beside a second loader": _beside_a_second_loader,
    "beyond the end": _beyond_the_end,
    "changed in place": _changed_in_place,
    "taken up again": _taken_up_again,
    "zipped": _zipped,
    "in a thread": _in_a_thread,
    "as a list": _as_a_list,
}


def draw_and_seed(seed: int) -> None:
    """Seed everything, and draw a little: generators are not always at their beginning."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    if seed % 2:
        draw_everywhere()


def draw_everywhere() -> None:
    """Draw from every generator that a process has."""
    torch.rand(1)
    np.random.rand()
    random.random()


def set_to_zero(batch: Any) -> None:
    """Write zeros into all that can be written to."""
    match batch:
        case torch.Tensor() if not batch.requires_grad and batch.layout == torch.strided and not batch.is_quantized:
            batch.zero_()
        case np.ndarray() if batch.flags.writeable and batch.dtype.kind in "fiu":
            batch[...] = 0
        case dict():
            for each in batch.values():
                set_to_zero(each)
        case list() | tuple():
            for each in batch:
                set_to_zero(each)


def portray_generators(built: Built) -> str:
    """The states of all generators of the trainer."""
    own = [built.generator, getattr(built.sampler, "generator", None)]
    digests = [digest_of_generator(each) for each in own if isinstance(each, torch.Generator)]
    return f"{portray_random_states()} {digests}"


def portray_dataset(items: Items) -> str:
    """What the trainer sees of its dataset: workers have copies."""
    cached = None if items.cache is None else len(items.cache)
    return f"count {items.count} cached {cached} epoch {items.epoch} made {Items.made} settings {SETTINGS}"


def change(built: Built, case: Case, step: Step, number: int) -> None:
    """Change something between two passes."""
    match step.change:
        case "epoch":
            built.items.epoch += 1
        case "global":
            SETTINGS["scale"] += 7
        case "class":
            Items.made += 1000
        case "seed":
            torch.manual_seed(number)
        case "draws":
            draw_everywhere()
        case "num_workers" if case.options["num_workers"] and case.options.get("in_order", True):
            built.loader.num_workers = 1 + built.loader.num_workers % 2
