"""Loading without workers where batches are to be the same as with them: torch's own iterator, ticket by ticket."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from torch.utils.data import dataloader
from torch.utils.data._utils.pin_memory import pin_memory

from antifreeze.engine.plan.seeds import ticket_seed
from antifreeze.engine.seclusion import Secluded, draws_at_once
from antifreeze.engine.worker.birth import seed_ticket
from antifreeze.engine.worker.randomness import Randomness
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.ticket_bench import FIRST_TICKETS


class TicketIterator(dataloader._SingleProcessDataLoaderIter):
    """One pass over the data in this process, with the random numbers that workers would draw."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        recipe = Recipe(
            dataset=self._dataset,
            collate_fn=self._collate_fn,
            auto_collation=self._auto_collation,
            worker_init_fn=None,
            base_seed=int(self._base_seed),
            num_workers=0,
            worker_threads=None,
            by_ticket=True,
        )
        self._randomness = Randomness(recipe)
        self._batch = 0
        self._draw: Callable[[], Any]
        self._asked_first: list[Any] = []
        self._first_tickets = FIRST_TICKETS
        self._ask_sampler()

    def _ask_sampler(self) -> None:
        """For its first index now, as if there were workers to send it to: what it draws is drawn when a pass begins."""
        draw: Callable[[], Any] = self._sampler_iter.__next__
        self._draw = draw if draws_at_once(self._index_sampler) else Secluded(draw)
        with contextlib.suppress(StopIteration):  # there is none
            self._asked_first.append(self._draw())

    def _next_data(self) -> Any:
        index = self._asked_first.pop() if self._asked_first else self._draw()
        of_the_program = self._randomness.state()
        try:
            data = self._fetch(index, ticket_seed(int(self._base_seed), self._batch))
        finally:
            self._randomness.restore(of_the_program)
            self._batch += 1
        return pin_memory(data, self._pin_memory_device) if self._pin_memory else data

    def _fetch(self, index: Any, seed: int) -> Any:
        seed_ticket(seed, self._randomness.held)
        data = self._dataset_fetcher.fetch(index)
        if self._first_tickets:
            self._first_tickets -= 1
            if self._randomness.look_again():  # a generator was made on the way, and has not followed from the seed
                seed_ticket(seed, self._randomness.held)
                data = self._dataset_fetcher.fetch(index)
        return data
