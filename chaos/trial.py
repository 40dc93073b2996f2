"""What a trial is made of, drawn from the seed and its number alone, so that it can be played again. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.faults import FETCHING, KINDS, Family, Fault, Kind, Point

SHAPES = ("dict", "tuple", "large", "ragged", "outliers", "tagged")
CONSUMERS = ("keeps", "views", "shares", "pickles", "threads", "signals")
LIMITS = ("descriptors", "processes", "memory")
MOST_FAULTS = 16
# Of a ticket that takes a few milliseconds, so that every part of it has its share.
LONGEST_DELAY_S = 0.012
LONGEST_PAUSE_S = 0.01
SHARE_OF_STREAMS = 0.3
SHARE_BY_TICKET = 0.4
# Trials that nothing happens to: they must be torch's, too.
SHARE_WITHOUT_FAULTS = 0.1
SHARE_UNDER_A_LIMIT = 0.3


@dataclass(frozen=True, slots=True)
class Trial:
    """A loader, and the faults that it is put to."""

    seed: int
    """Of the user's program."""
    context: str
    keeps_workers: bool
    epochs: int
    workers: int
    batch_size: int
    batches: int
    prefetch_factor: int
    is_stream: bool
    """Whether the dataset is iterable: then nothing gets stuck, for streams are not hedged."""
    shape: str
    own_collate: bool
    """Whether batches are made by a function of the user's."""
    pause_s: float
    """How long the training step takes."""
    breaks_at: int | None
    """After so many batches the user breaks off the first of two epochs."""
    faults: tuple[Fault, ...]
    by_ticket: bool = False
    """Whether batches are to be those that are made without workers (`seeding="ticket"`), and not torch's."""
    consumer: str = "keeps"
    """What the program does with its batches."""
    limit: str | None = None
    """What there is little of."""

    @property
    def length(self) -> int:
        """How many samples there are; the last batch is a short one."""
        return self.batches * self.batch_size - (self.batch_size > 1)

    def item(self, fault: Fault) -> int | None:
        """The item of a stream that a fault is set at; None: the stream ends before it.

        Workers take turns: batch k is worker k mod n's, and has the items of that worker's share that come next.
        """
        round_, worker = divmod(fault.batch, self.workers)
        item = worker + self.workers * (round_ * self.batch_size + fault.position)
        return item if item < self.length else None

    def most_batches(self, epoch: int) -> int | None:
        """After how many batches the user breaks off this epoch; None: not at all."""
        return self.breaks_at if epoch == 0 else None

    @property
    def stuck(self) -> int:
        """How many faults have to be waited for."""
        return sum(fault.family is Family.STUCK for fault in self.faults)

    @property
    def strikes(self) -> tuple[Fault, ...]:
        """The faults that come from the trainer."""
        return tuple(fault for fault in self.faults if fault.family is Family.STRIKE)


def draw(seed: int, number: int, *, kinds: Sequence[Kind] = KINDS) -> Trial:
    """The trial with this number."""
    dice = random.Random(f"{seed} {number}")
    workers, prefetch = dice.randint(1, 4), dice.randint(1, 3)
    batches, epochs = dice.randint(80, 120), dice.randint(1, 2)
    batch_size = dice.randint(1, 5)
    deadly = [kind for kind in kinds if kind.family in (Family.DEATH, Family.STRIKE)]
    is_stream = bool(deadly) and dice.random() < SHARE_OF_STREAMS
    kinds = deadly if is_stream else kinds
    count = 0 if dice.random() < SHARE_WITHOUT_FAULTS else dice.randint(1, MOST_FAULTS)
    chosen = [dice.choice(kinds) for _ in range(count)]
    faults = _place(dice, chosen, workers=workers, window=workers * prefetch, batches=batches, epochs=epochs)
    points = {fault.point for fault in faults}
    needs_base = any(fault.kind == "clean base killed" for fault in faults)
    shape = "tagged" if Point.WRITING in points else dice.choice(SHAPES)
    return Trial(
        seed=dice.getrandbits(31),
        context=dice.choice(["spawn", "forkserver"] if needs_base else ["fork", "fork", "spawn", "forkserver"]),
        keeps_workers=dice.random() < 0.5,
        epochs=epochs,
        workers=workers,
        batch_size=batch_size,
        batches=batches,
        prefetch_factor=prefetch,
        is_stream=is_stream,
        shape=shape,
        own_collate=shape in ("ragged", "outliers", "tagged") or Point.COLLATING in points or dice.random() < 0.3,
        pause_s=dice.choice([0.0, 0.0, dice.uniform(0, LONGEST_PAUSE_S)]),
        breaks_at=dice.randrange(batches) if epochs == 2 and dice.random() < 0.3 else None,
        faults=tuple(_at_positions(fault, dice, batch_size) for fault in faults),
        by_ticket=not is_stream and dice.random() < SHARE_BY_TICKET,
        consumer=_consumer(dice, faults),
        limit=dice.choice(LIMITS) if dice.random() < SHARE_UNDER_A_LIMIT else None,
    )


def _consumer(dice: random.Random, faults: Sequence[Fault]) -> str:
    """What the program does; strikes look into the loader, which other threads must not use meanwhile."""
    has_strikes = any(fault.family is Family.STRIKE for fault in faults)
    return dice.choice([kind for kind in CONSUMERS if not (has_strikes and kind == "threads")])


def _place(
    dice: random.Random, chosen: Sequence[Kind], *, workers: int, window: int, batches: int, epochs: int
) -> list[Fault]:
    """Faults that do not meet: two ends at the same place are no accident to the loader, and rightly so.

    Strikes end workers wherever they are, which is somewhere in the window, and a timer's signal comes when the worker may
    have gone on to another batch of it; all others have a batch of their own.
    """
    taken: set[tuple[int, int]] = set()
    starting: set[int] = set()
    faults: list[Fault] = []
    wanted = [(kind, dice.choice(kind.points)) for kind in chosen]
    for kind, point in sorted(wanted, key=lambda each: not _needs_room(*each)):
        epoch, batch, worker = dice.randrange(epochs), dice.randrange(batches - 1), dice.randrange(workers)
        if point is Point.STARTING:
            if worker in starting:
                continue
            starting.add(worker)
            faults.append(Fault(len(faults), kind.name, point, 0, 0, worker=worker))
            continue
        reach = window + 1 if _needs_room(kind, point) else 0
        if (epoch, batch) in taken or any((epoch, b) in taken for b in range(batch - reach, batch + reach + 1)):
            continue
        taken.update((epoch, b) for b in range(batch - reach, batch + reach + 1))
        target = worker if kind.family is Family.STRIKE else None
        faults.append(Fault(len(faults), kind.name, point, epoch, batch, worker=target))
    return faults


def _needs_room(kind: Kind, point: Point) -> bool:
    return kind.family is Family.STRIKE or point is Point.ANY_MOMENT


def _at_positions(fault: Fault, dice: random.Random, batch_size: int) -> Fault:
    last = batch_size - 1
    if fault.point in FETCHING:
        position = {Point.FIRST: 0, Point.MIDDLE: batch_size // 2, Point.LAST: last}[fault.point]
    else:
        position = dice.randint(0, last)
    delay_s = dice.uniform(0, LONGEST_DELAY_S) if fault.point is Point.ANY_MOMENT else 0.0
    return Fault(
        fault.number, fault.kind, fault.point, fault.epoch, fault.batch, min(position, last), fault.worker, delay_s
    )
