"""Plays a trial: first calmly on torch's own DataLoader, then on ours under faults, and looks at what is left.

With `seeding="ticket"`, what is given calmly without workers takes the place of what torch gives.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import antifreeze
from antifreeze.engine.backends import process
from antifreeze.observe.accounts import account_of
from chaos import judge
from chaos.consumer import Consumer
from chaos.faults import Family, Fault, Point
from chaos.judge import Evidence, Outcome, Struck
from chaos.limits import limited, remove_groups_of
from chaos.patient import Augmented, Collated, Flowing, Order, Start, digest, seed_all
from chaos.sabotage import Sabotage
from chaos.signals import frequent_signals
from chaos.strikes import strike
from chaos.trial import Trial

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from leftovers import Mark, Snapshot, leftovers, take, wait_until

# On a machine that is busy with other things, too; a calm trial takes a second.
DEADLINE_S, DEADLINE_STUCK_S = 45.0, 20.0
GRACE_S = 5.0
# The shortest that is of use: the trainer looks at its workers once a second.
STALL_AFTER_S = 0.5
THREADS = 3


class TimeIsOver(BaseException):
    """The trial hangs."""


class Stage:
    """A trial on its way."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        self.trial = trial
        self.folder = folder
        self.calm: list[list[str]] = []
        self.ours: list[list[str]] = []
        self.sabotage = Sabotage()
        self.samples: dict[int, int] = {}
        self.told: dict[int, Callable[[], Struck]] = {}
        self.struck: dict[int, Struck] = {}
        self.records: list[dict[str, Any]] = []
        self.iterator: Any = None
        self.raised = self.hang = ""
        self.consumer = Consumer(trial.consumer, trial.seed)

    def rehearse(self) -> None:
        """What is given when nothing happens."""
        order = Order(self.trial.length, batch_size=self.trial.batch_size)
        seed_all(self.trial.seed)
        loader = self._calm_loader(order)
        for epoch in range(self.trial.epochs):
            self.calm.append([digest(batch) for batch in itertools.islice(loader, self.trial.most_batches(epoch))])
        in_workers = [fault for fault in self.trial.faults if fault.family is not Family.STRIKE]
        for fault in in_workers:
            sample = (
                self.trial.item(fault)
                if self.trial.is_stream
                else order.drawn[fault.epoch][fault.batch][fault.position]
            )
            if sample is not None:
                self.samples[fault.number] = sample
        self.sabotage = Sabotage(
            str(self.folder),
            {
                self.samples[fault.number]: fault
                for fault in in_workers
                if fault.point is not Point.STARTING and fault.number in self.samples
            },
            tuple(fault for fault in in_workers if fault.point is Point.STARTING),
        )

    def _calm_loader(self, order: Order) -> Any:
        arguments = self._arguments(order, Sabotage())
        if not self.trial.by_ticket:
            return torch.utils.data.DataLoader(**arguments, multiprocessing_context="fork")
        alone = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False}
        return antifreeze.DataLoader(**arguments | alone, seeding="ticket")

    def perform(self) -> None:
        """The same on ours, under faults."""
        order = Order(self.trial.length, batch_size=self.trial.batch_size)
        seed_all(self.trial.seed)
        loader = antifreeze.DataLoader(
            **self._arguments(order, self.sabotage),
            multiprocessing_context=self.trial.context,
            worker_init_fn=Start(self.sabotage),
            stall_after=STALL_AFTER_S,
            seeding="ticket" if self.trial.by_ticket else "torch",
        )
        try:
            for epoch in range(self.trial.epochs):
                self._arm(epoch)
                self._run_epoch(epoch, loader)
                self._disarm()
                self.consumer.check()
        except Exception:  # whatever the user's loop is given is a finding
            self.raised = traceback.format_exc()
        finally:
            self.records = [dataclasses.asdict(record) for record in account_of(loader).ledger]
            if self.iterator is not None:
                self.iterator._shutdown_workers()
            self.iterator = None
            gc.collect()
            self.consumer.drop()  # it can read what it kept although the workers are gone

    def evidence(self) -> Evidence:
        """All that is known, when it is over."""
        fired = {fault.number: self.sabotage.fired(fault) for fault in self.trial.faults}
        return Evidence(
            fired={number: facts for number, facts in fired.items() if facts is not None},
            struck=self.struck,
            births=self.sabotage.births(),
            records=self.records,
            samples=self.samples,
        )

    def _arguments(self, order: Order, sabotage: Sabotage) -> dict[str, Any]:
        trial = self.trial
        samples = Augmented(trial.length, shape=trial.shape, sabotage=sabotage)
        from_where = (
            {"dataset": Flowing(samples), "batch_size": trial.batch_size}
            if trial.is_stream
            else {"dataset": samples, "batch_sampler": order}
        )
        return {
            **from_where,
            "num_workers": trial.workers,
            "collate_fn": Collated(trial.shape, sabotage) if trial.own_collate else None,
            "prefetch_factor": trial.prefetch_factor,
            "persistent_workers": trial.keeps_workers,
        }

    def _arm(self, epoch: int) -> None:
        for fault in self.trial.faults:
            if fault.epoch == epoch and fault.family is not Family.STRIKE:
                self.sabotage.arm(fault)

    def _disarm(self) -> None:
        """In the next epoch they would meet the others."""
        for fault in self.trial.faults:
            self.sabotage.disarm(fault)

    def _run_epoch(self, epoch: int, loader: Any) -> None:
        strikes = {fault.batch: fault for fault in self.trial.strikes if fault.epoch == epoch}
        self.ours.append([])
        self.iterator = iter(loader)
        told: dict[int, Callable[[], Struck]] = {}
        if self.trial.consumer == "threads":
            self._run_in_threads(epoch)
        else:
            with frequent_signals() if self.trial.consumer == "signals" else nullcontext():
                self._run_loop(epoch, strikes, told)
        self.struck |= {number: tell() for number, tell in told.items()}
        if not self.trial.keeps_workers:
            self.iterator = None  # as a user's loop does it

    def _run_loop(self, epoch: int, strikes: dict[int, Fault], told: dict[int, Callable[[], Struck]]) -> None:
        got = self.ours[-1]
        while len(got) != self.trial.most_batches(epoch):
            if (fault := strikes.pop(len(got), None)) is not None:
                told[fault.number] = strike(fault, self.iterator)
            try:
                batch = next(self.iterator)
            except StopIteration:
                break
            got.append(digest(batch))
            self.consumer.take(batch)
            time.sleep(self.trial.pause_s)  # the training step

    def _run_in_threads(self, epoch: int) -> None:
        """Several threads take batches from one iterator; which thread is given which is not said, so they are sorted."""
        most, got, errors = self.trial.most_batches(epoch), self.ours[-1], list[BaseException]()
        turns, lock = itertools.count(), threading.Lock()

        def consume() -> None:
            try:
                while most is None or next(turns) < most:
                    batch = next(self.iterator)
                    with lock:
                        got.append(digest(batch))
                        self.consumer.take(batch)
            except StopIteration:
                pass
            except BaseException as error:  # raised in the main thread, where the trial ends
                errors.append(error)

        threads = [threading.Thread(target=consume, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        place = {fingerprint: number for number, fingerprint in enumerate(self.calm[epoch])}
        got.sort(key=lambda fingerprint: place.get(fingerprint, len(place)))


def play(trial: Trial, number: int, *, folder: Path, mark: Mark) -> Outcome:
    """All of it; what goes wrong is in the outcome."""
    began = time.monotonic()
    stage = Stage(trial, folder)
    warnings.filterwarnings("ignore", "This DataLoader will create")
    stage.rehearse()
    gc.collect()
    before = take()
    try:
        with (
            limited(trial.limit, workers=trial.workers, window=trial.workers * trial.prefetch_factor),
            _deadline(DEADLINE_S + DEADLINE_STUCK_S * trial.stuck, stage),
        ):
            try:
                stage.perform()
            finally:
                remove_groups_of(folder)
    except TimeIsOver:
        pass
    evidence = stage.evidence()
    leaks = _what_is_left(before, mark, {os.getpid(), *judge.pids(evidence)})
    hit = judge.hits(trial.faults, evidence)
    is_whole = not stage.raised and not stage.hang
    return Outcome(
        number=number,
        seconds=round(time.monotonic() - began, 3),
        hits=tuple((fault.kind, str(fault.point)) for fault in hit),
        missed=len(trial.faults) - len(hit),
        compared=judge.compare(stage.ours, stage.calm, changed=stage.consumer.changed)
        if is_whole
        else judge.Compared(),
        raised=stage.raised,
        hang=stage.hang,
        leaks=tuple(leaks),
        back_s=tuple(round(seconds, 4) for seconds in judge.times_to_be_back(hit, evidence)),
    )


@contextmanager
def _deadline(seconds: float, stage: Stage) -> Iterator[None]:
    def is_over(_: int, frame: FrameType | None) -> None:
        if not stage.hang:
            stage.hang = where_everybody_is(stage, frame)
        raise TimeIsOver

    previous = signal.signal(signal.SIGALRM, is_over)
    signal.setitimer(signal.ITIMER_REAL, seconds, 20)  # again, in case the end hangs too
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def where_everybody_is(stage: Stage, frame: FrameType | None) -> str:
    """What the trainer and its workers are at; whatever state the pool is in, the trainer's stack is told."""
    lines = [f"epoch {len(stage.ours)}, batches {len(stage.ours[-1]) if stage.ours else 0}"]
    lines += ["trainer:", *traceback.format_stack(frame)]
    try:
        lines += _where_workers_are(stage)
    except Exception:  # the alarm can strike while a worker is being replaced, or the pool is being closed
        lines.append(traceback.format_exc())
    return "\n".join(lines)


def _where_workers_are(stage: Stage) -> list[str]:
    pool = getattr(stage.iterator and stage.iterator._epoch, "_pool", None)
    if pool is None:  # it loads in this process
        return []
    lines = [
        f"{pool!r} hedges={pool.hedges} dismissed={pool._dismissed} stems={pool._stems.all} stopped={pool.is_stopped}",
        f"happened={pool._happened} awaited={pool._lines._awaited}",
        f"delivery={vars(stage.iterator._epoch._delivery)}",
    ]
    workers = [*pool.workers, *pool.hedges.values()]
    for worker in workers:
        if worker.pidfd is not None:
            process.ask_for_stack(worker.pidfd)
    time.sleep(0.5)  # for them to write
    for worker in workers:
        lines.append(f"{worker!r} {worker.board.read_pulse()} leases={worker.leases}")
        # The board of one that is lost is closed before another takes its place, which can take as long as a process takes
        # to start.
        lines.append(worker.board.read_text()[-3000:] if worker.board.segment.fd >= 0 else "its board is closed")
    return lines


def _what_is_left(before: Snapshot, mark: Mark, pids: set[int]) -> list[str]:
    def left() -> list[str]:
        return [line for line in leftovers(before, mark) if judge.is_ours(line, pids)]

    def is_clean() -> bool:
        gc.collect()
        return not left()

    return [] if wait_until(is_clean, GRACE_S) else left()
