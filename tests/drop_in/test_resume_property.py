"""`StatefulDataLoader`: wherever it is stopped, and whatever happens before or after, the two halves are the whole."""

import dataclasses
import io
import json
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import antifreeze
from drop_in.examples import examples
from drop_in.harness import assert_identical, generator_states, seed_all
from drop_in.random_samples import Drawing, InBatches, Stream, StreamWhoseIteratorHasState, StreamWithState

pytestmark = [pytest.mark.usefixtures("not_for_torch"), pytest.mark.deadline(examples.deadline_s)]

STREAMS = {
    "stream": Stream,
    "stream with state": StreamWithState,
    "stream whose iterator has state": StreamWhoseIteratorHasState,
}


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the first half ends."""

    epoch: int
    batch: int
    """So many batches of that epoch are taken, or all that there are."""
    is_after: bool
    """If it has no more batches: whether the loader has said so."""
    is_asked_often: bool
    """Whether the state is asked for after every batch."""
    further: int
    """So many batches are taken after the state, and are lost."""

    def is_over(self, count: int) -> bool:
        """Whether the loader has said that its epoch, of so many batches, is over."""
        return self.is_after and self.batch >= count


@dataclass(frozen=True, slots=True)
class Case:
    """A loader that is stopped and taken up, and what happens to its workers."""

    kind: Literal["in turn", "shuffled", "in batches", "stream", "stream with state", "stream whose iterator has state"]
    seeding: Literal["torch", "ticket"]
    length: int
    batch_size: int | None
    workers: int
    workers_after: int
    persistent: bool
    every: int
    stop: Stop
    killed: tuple[int, int]
    """One worker is killed after so many batches of the first half, and one of the second."""
    paper: Literal["torch", "json"]
    """What the state is written down with."""

    @property
    def is_stream(self) -> bool:
        return self.kind in STREAMS


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(["in turn", "shuffled", "in batches", *STREAMS]))
    seeding = "torch" if kind in STREAMS else draw(st.sampled_from(["torch", "ticket"]))
    # Without workers the samples draw from where this sampler draws as it goes: nobody could tell what it would give.
    may_do_without = seeding == "ticket" or kind != "in batches"
    workers = draw(st.sampled_from([2, 1, 3, 0] if may_do_without else [2, 1, 3]))
    return Case(
        kind=kind,
        seeding=seeding,
        length=draw(st.integers(1, 18)),
        batch_size=draw(st.sampled_from([2, 1, 3, 5, None])),
        workers=workers,
        workers_after=draw(st.sampled_from([2, 1, 5, 0])) if seeding == "ticket" else workers,
        persistent=draw(st.booleans()),
        every=draw(st.sampled_from([1, 2, 3, 7, 0])),
        stop=Stop(
            epoch=draw(st.integers(0, 1)),
            batch=draw(st.integers(0, 12) | st.just(99)),
            is_after=draw(st.booleans()),
            is_asked_often=draw(st.booleans()),
            further=draw(st.integers(0, 4)),
        ),
        killed=draw(st.tuples(st.integers(-9, 9), st.integers(-9, 9))),
        paper=draw(st.sampled_from(["torch", "json"])),
    )


@contextmanager
def loader_of(case: Case, *, workers: int, folder: Path | None = None) -> Iterator[Any]:
    options: dict[str, Any] = {"num_workers": workers, "snapshot_every_n_steps": case.every, "seeding": case.seeding}
    if workers:
        options |= {"persistent_workers": case.persistent, "sample_timeout": 20, "multiprocessing_context": "fork"}
    if case.kind == "in batches":
        options["batch_sampler"] = InBatches(case.length)
    else:
        options["batch_size"] = case.batch_size
    if case.kind == "shuffled":
        options["shuffle"] = True
    dataset = STREAMS[case.kind](case.length) if case.is_stream else Drawing(case.length, folder=folder)
    loader = antifreeze.StatefulDataLoader(dataset, **options)
    try:
        yield loader
    finally:
        if loader._iterator is not None:
            loader._iterator._shutdown_workers()


def whole(case: Case) -> list[list[Any]]:
    """What four epochs give, without a stop."""
    seed_all()
    with loader_of(case, workers=case.workers) as loader:
        return [list(loader) for _ in range(4)]


def first_half(case: Case, *, count: int) -> tuple[list[list[Any]], Any, Any]:
    """The epochs up to the stop, the state there, and the generators of the program there.

    `count`: how many batches the epoch of the stop has.
    """
    seed_all()
    stop, killed = case.stop, case.killed[0]
    with loader_of(case, workers=case.workers) as loader:
        seen = [list(loader) for _ in range(stop.epoch)]
        if stop == Stop(0, 0, True, stop.is_asked_often, stop.further):  # before any iterator was made
            return [[]], loader.state_dict(), generator_states()
        iterator = iter(loader)
        batches: list[Any] = []
        seen.append(batches)
        while len(batches) < min(stop.batch, count):
            if len(batches) == killed:
                kill_one(iterator)
            if stop.is_asked_often:
                loader.state_dict()
            batches.append(next(iterator))
        if stop.is_over(count):
            assert next(iterator, None) is None
        state, generators = loader.state_dict(), generator_states()
        for _ in range(stop.further):
            next(iterator, None)
        return seen, state, generators


def second_half(case: Case, state: Any, generators: Any, folder: Path) -> tuple[list[list[Any]], set[int]]:
    """The rest of the epoch and the one after it, in a program that knows the state alone; and what the rest fetched."""
    seed_all(99)
    with loader_of(case, workers=case.workers_after, folder=folder) as loader:
        loader.load_state_dict(state)
        set_generator_states(generators)
        rest: list[Any] = []
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            rest.append(batch)
            if number == case.killed[1]:
                kill_one(iterator)
        fetched = {int(line) for line in log.read_text().split()} if (log := folder / "fetched").exists() else set()
        return [rest, list(loader)], fetched


def kill_one(iterator: Any) -> None:
    workers = getattr(iterator, "_workers", [])
    if workers:
        os.kill(random.Random(5).choice(workers).pid, signal.SIGKILL)


def set_generator_states(states: Any) -> None:
    of_torch, of_random, of_numpy = states
    torch.set_rng_state(torch.frombuffer(bytearray(of_torch), dtype=torch.uint8))
    random.setstate(of_random)
    np.random.set_state(of_numpy)


def through(paper: str, state: Any) -> Any:
    """What becomes of a state that is written down and read."""
    if paper == "json":
        return json.loads(json.dumps(state))
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# Seen to fail: the sampler of the next epoch drew what had been drawn; a stream that had ended was asked where it was; a
# generator that is made at first use began anew in the next epoch; a pass without workers was left before its sampler drew.
AFTER_THE_END = Case(
    kind="in batches",
    seeding="torch",
    length=11,
    batch_size=None,
    workers=1,
    workers_after=1,
    persistent=True,
    every=0,
    stop=Stop(epoch=0, batch=99, is_after=True, is_asked_often=False, further=0),
    killed=(2, 0),
    paper="json",
)
AT_THE_LAST_BATCH = dataclasses.replace(
    AFTER_THE_END,
    kind="stream with state",
    length=5,
    batch_size=2,
    workers=2,
    workers_after=2,
    every=3,
    stop=Stop(epoch=1, batch=5, is_after=False, is_asked_often=True, further=3),
    killed=(5, 8),
)
AT_THE_LAST_BATCH_WITHOUT_WORKERS = dataclasses.replace(
    AT_THE_LAST_BATCH,
    kind="in turn",
    workers=0,
    workers_after=0,
    every=1,
    stop=Stop(epoch=0, batch=99, is_after=False, is_asked_often=False, further=0),
)

BY_TICKET = dataclasses.replace(AT_THE_LAST_BATCH_WITHOUT_WORKERS, seeding="ticket", workers=2, workers_after=2)
NOT_ASKED_YET = dataclasses.replace(
    BY_TICKET,
    kind="in batches",
    workers=0,
    stop=Stop(epoch=0, batch=0, is_after=False, is_asked_often=False, further=0),
    killed=(-1, -1),
)


@pytest.mark.scan
@settings(deadline=None, max_examples=examples.count(30), suppress_health_check=examples.suppressed)
@given(case=cases())
@example(case=AFTER_THE_END)
@example(case=AT_THE_LAST_BATCH)
@example(case=AT_THE_LAST_BATCH_WITHOUT_WORKERS)
@example(case=BY_TICKET)
@example(case=NOT_ASKED_YET)
def test_the_two_halves_are_the_whole(case: Case) -> None:
    expected = whole(case)
    epoch = case.stop.epoch
    count = len(expected[epoch])
    seen, state, generators = first_half(case, count=count)
    done = len(seen[-1])
    assert_identical([*expected[:epoch], expected[epoch][:done]], seen, "first half")
    with tempfile.TemporaryDirectory() as folder:
        rest, fetched = second_half(case, through(case.paper, state), generators, Path(folder))
    if case.stop.is_over(count):
        assert_identical(expected[epoch + 1 : epoch + 3], rest, "next epochs")
        return
    assert_identical(expected[epoch][done:], rest[0], "rest of the epoch")
    assert_identical(expected[epoch + 1], rest[1], "next epoch")
    if not case.is_stream and (case.seeding == "ticket" or case.every == 1):
        again = [batch for batch in seen[-1] if not fetched.isdisjoint(indices_of([batch]))]
        assert len(again) <= case.workers_after, "more was fetched again than what each worker tries out"


def indices_of(batches: list[Any]) -> set[int]:
    return {int(index) for batch in batches for index in torch.as_tensor(batch[0]).reshape(-1)}
