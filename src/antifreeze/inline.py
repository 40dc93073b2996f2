"""The iterators of loaders without workers: torch's own iterator to everybody who looks, with policy, ledger and times.

They are subclasses of torch's, so that every `isinstance` stays true. Random numbers come from the generators of the
program, exceptions are the user's own, and samples are not copied.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from antifreeze.engine.inline.zero import ZeroWorkers
from antifreeze.engine.seclusion import Secluded, draws_at_once
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.errors import ConfigError
from antifreeze.observe.accounts import account_of
from antifreeze.observe.say import say_once
from antifreeze.options import Mode, arguments, mode, options_of
from antifreeze.torch_side import requirements
from antifreeze.torch_side.compiler import skip_our_code
from antifreeze.torch_side.loaders import LocalIterator, is_profiled, is_stream, is_torchs_fetcher, pin_memory

_clock = time.perf_counter


class ZeroIterator(LocalIterator):
    """One pass over the data in this process."""

    _is_ours = True  # looked for in the class itself: a class that others derive from it is theirs
    _by_ticket = False
    _zero: ZeroWorkers | None = None
    """None: all is left to torch."""

    def __init__(self, loader: Any) -> None:
        skip_our_code()
        super().__init__(loader)
        self._profile_name = (
            f"enumerate(DataLoader)#{LocalIterator.__name__}.__next__"  # which profiles are searched for
        )
        self._try_to_start(loader)

    def _try_to_start(self, loader: Any) -> None:
        is_off = mode() is Mode.OFF and not self._by_ticket
        if is_off or "_is_ours" not in vars(type(self)) or not is_torchs_fetcher(self._dataset_fetcher):
            return
        if requirements.why_unfit() is not None:
            return
        try:
            self._start(loader)
        except ConfigError:
            raise
        except Exception as fault:  # of ours: it must not stop a program that torch would carry
            if mode() is Mode.REQUIRE:
                raise
            say_once(f"a loader with num_workers=0 runs without on_error=, ledger and statistics: {fault!r}")

    def _start(self, loader: Any) -> None:
        options, account = options_of(loader), account_of(loader)
        self._tally = account.tally
        self._tally.begin(_clock())
        reads_stream = is_stream(self)
        recipe = Recipe(
            dataset=self._dataset,
            collate_fn=self._collate_fn,
            auto_collation=self._auto_collation,
            worker_init_fn=None,
            base_seed=int(self._base_seed),
            num_workers=0,
            worker_threads=None,
            policy=options.policy,
            is_stream=reads_stream,
            drop_last=self._drop_last,
            by_ticket=self._by_ticket,
        )
        source = self._dataset_fetcher.dataset_iter if reads_stream else None
        self._zero = ZeroWorkers(recipe, options, account, source=source)

    def __next__(self) -> Any:
        # torch's own __next__ is for its profiler, which costs as much as a small batch.
        # It also warns of an iterable dataset that gives more than its length says.
        if self._zero is None or is_profiled() or self._IterableDataset_len_called is not None:
            return super().__next__()
        data = self._next_data()
        self._num_yielded += 1
        return data

    def _next_data(self) -> Any:
        if self._zero is None:
            return super()._next_data()  # type: ignore[no-untyped-call]
        asked = _clock()
        try:
            data = self._zero.next_batch(self._next_index)
            if self._pin_memory:
                data = pin_memory(data, self._pin_memory_device)
        except BaseException:
            self._tally.note_none(asked, _clock())
            raise
        self._tally.note_batch(asked, _clock())
        return data


class TicketIterator(ZeroIterator):
    """The same, with the random numbers that workers would draw, ticket by ticket."""

    _is_ours = True
    _by_ticket = True

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._draw: Callable[[], Any]
        self._asked_first: list[Any] = []
        self._ask_sampler()

    def _ask_sampler(self) -> None:
        """For its first index now, as if there were workers to send it to: what it draws is drawn when a pass begins."""
        draw: Callable[[], Any] = self._sampler_iter.__next__
        self._draw = draw if draws_at_once(self._index_sampler) else Secluded(draw)
        with contextlib.suppress(StopIteration):  # there is none
            self._asked_first.append(self._draw())

    def _next_index(self) -> Any:
        return self._asked_first.pop() if self._asked_first else self._draw()


def iterator_for(loader: Any) -> ZeroIterator:
    """The iterator of a loader without workers."""
    return (TicketIterator if arguments(loader).get("seeding") == "ticket" else ZeroIterator)(loader)
