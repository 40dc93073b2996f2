"""Workbenches in this process: tickets in, answers and batches out."""

import os
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from antifreeze.engine.arena import board as boards
from antifreeze.engine.arena.board import Board
from antifreeze.engine.arena.forms import Form
from antifreeze.engine.arena.views import read_letter
from antifreeze.engine.crossing import results
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.wire.messages import Emptied, Failed, Filled, Work, decode, encode
from antifreeze.engine.worker.bench import Workbench
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.renewal import Heritage
from antifreeze.policy import Policy

Answer = Filled | Failed | Emptied


class Bench:
    """A workbench, and the trainer's side of it."""

    def __init__(
        self,
        dataset: Any,
        policy: Policy | None = None,
        *,
        collate_fn: Callable[[Any], Any] = default_collate,
        batched: bool = True,
        seed: int = 0,
    ) -> None:
        recipe = Recipe(dataset, collate_fn, batched, None, seed, 1, None, policy or Policy())
        self.board: Board = boards.create()
        heritage = Heritage(os.getppid(), time.monotonic(), ())
        self.bench = Workbench(recipe, WorkerNo(0), self.board, heritage)
        self._forms: dict[int, Form] = {}
        self._tickets = 0

    def close(self) -> None:
        self.board.close()

    def skip_to(self, ticket: int) -> None:
        """Let the next ticket have this number."""
        self._tickets = ticket

    def do(self, index: Any, **more: Any) -> Answer:
        """The answer to the next ticket, as it arrives."""
        work = Work(TicketNo(self._tickets), index, None, 0, (), **more)
        self._tickets += 1
        answer, made = self.bench.carry_out(work, [])
        assert made is None, "batches in these tests are small"
        self.bench.rest()
        arrived = decode(encode(answer))
        assert isinstance(arrived, Filled | Failed | Emptied)
        return arrived

    def batch(self, index: Any, **more: Any) -> Any:
        """The batch that the next ticket gives."""
        return self.open(self.do(index, **more))

    def open(self, answer: Answer) -> Any:
        if isinstance(answer, Failed):
            results.load(answer.error, lambda reference: None).reraise()
        assert isinstance(answer, Filled) and answer.body is not None
        if answer.definition:
            self._forms[answer.parcel.form] = Form(answer.definition)
        form = self._forms.get(answer.parcel.form)
        return read_letter(answer.body, answer.parcel, form, lambda reference: None)


def draw() -> list[float]:
    """One number of each global generator."""
    return [torch.rand(1).item(), random.random(), float(np.random.rand())]


def kinds(answer: Answer) -> list[tuple[str, int, str, int]]:
    """What is in an answer's mishaps, but for the texts."""
    return [(mishap.kind, mishap.position, mishap.sample, mishap.attempt) for mishap in answer.mishaps]
