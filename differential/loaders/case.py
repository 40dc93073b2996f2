"""A case: one random loader, and what is done with it. All of it follows from a seed and a start method."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from differential.loaders.datasets import DRAWS, ERRORS, HELD, Nature
from differential.loaders.parts import COLLATE_FUNCTIONS, INIT_FUNCTIONS, SOURCES, TAKE_ANYTHING
from differential.loaders.samples import COLLATABLE, KINDS

STREAMS = ("stream", "stream with length", "stream object", "chain")
SHAPES = (*["map"] * 5, *STREAMS, "stream", "concat", "sum", "subset", "stack", "stack by name", "list", "tensors")
SAMPLERS = ("shuffle", "own generator", "one by one", "weighted", "subset", "distributed", "replacement", "list")
BATCH_SAMPLERS = ("batches", "batches with length")
PASSES = (
    *["whole"] * 2,
    "broken off",
    "interleaved",
    "with draws",
    "held",
    "beside a second loader",
    "beyond the end",
    "changed in place",
    "taken up again",
    "zipped",
    "in a thread",
    "as a list",
)
# Which batches are the first ones under `in_order=False` is a matter of time. So is, with torch, how far kept workers have
# read ahead when a pass over a stream is broken off in which one of them had come to its end.
WHOLE_PASSES = ("whole", "with draws", "beyond the end", "changed in place", "zipped", "in a thread", "as a list")
CHANGES = (*["nothing"] * 2, "epoch", "global", "class", "seed", "draws", "num_workers")


@dataclass(frozen=True, slots=True)
class Step:
    """One pass over the loader, and what the trainer changes behind it."""

    way: str
    batches: int
    """Where a pass that is broken off ends."""
    change: str


@dataclass(frozen=True, slots=True)
class Case:
    """One random loader, and what is done with it."""

    seed: int
    method: str
    context: str
    """How the start method is given: as a name, a context of multiprocessing's or of torch's, or as the default."""
    shape: str
    nature: Nature
    second: Nature
    is_sharded: bool
    is_uneven: bool
    claimed_length: int
    sampler: str | None
    source: str
    sampler_fails_at: int | None
    generator_seed: int | None
    collate: str | None
    init: str | None
    options: dict[str, Any] = field(hash=False)
    steps: tuple[Step, ...] = ()

    @property
    def lends_memory(self) -> bool:
        """Samples are parts of the dataset: on torch, the trainer may write to it through them, which a script compares."""
        return self.shape in ("list", "tensors") or self.nature.has_cache or self.second.has_cache

    @property
    def is_unordered(self) -> bool:
        """Which worker makes which batch, and the order of batches, are a matter of time."""
        return not self.options.get("in_order", True) and self.options["num_workers"] > 1


def draw_case(seed: int, method: str) -> Case:
    """The case of this seed and start method."""
    draw = random.Random(f"{seed} {method}")
    is_fork = method == "fork"
    length = draw.choice((0, 1, 5, 31)) if draw.random() < 0.2 else draw.choice((7, 12, 17, 24) if is_fork else (5, 8))
    collate = _draw_collate(draw)
    takes_anything = collate in TAKE_ANYTHING or draw.random() < 0.15
    kind = draw.choice(sorted(KINDS if takes_anything else COLLATABLE))
    shape = draw.choice(SHAPES)
    is_stream = shape in STREAMS
    sampler = None if is_stream else draw.choice((None, None, None, "shuffle", "shuffle", *SAMPLERS, *BATCH_SAMPLERS))
    options = _draw_options(draw, is_fork=is_fork)
    if sampler not in BATCH_SAMPLERS:
        options |= _draw_batching(draw)
    if not is_stream and draw.random() < 0.08:
        options["in_order"] = False
    is_unordered = not options.get("in_order", True) and options["num_workers"] > 1
    nature = _draw_nature(draw, kind, length, is_fork=is_fork, is_plain=is_unordered)
    is_kept_stream = is_stream and options["num_workers"] > 1 and "persistent_workers" in options
    needs_whole = is_unordered or is_kept_stream
    init = draw.choice(sorted(INIT_FUNCTIONS)) if draw.random() < 0.35 and not is_unordered else None
    return Case(
        seed=seed,
        method=method,
        context=draw.choice(("name", "name", "multiprocessing", "torch", "default")),
        shape=shape,
        nature=nature,
        second=_draw_nature(draw, kind, length, is_fork=is_fork, is_plain=is_unordered),
        is_sharded=draw.random() < 0.6,
        is_uneven=draw.random() < 0.3,
        claimed_length=draw.choice((length, length // 2, length + 3)),
        sampler=sampler,
        source=draw.choice(sorted(SOURCES)),
        sampler_fails_at=draw.randrange(length + 1) if draw.random() < 0.1 else None,
        generator_seed=draw.randrange(1000) if draw.random() < 0.3 else None,
        collate=None if is_unordered else collate,
        init=init,
        options=options,
        # What torch does after a worker_init_fn has failed is compared by a script.
        steps=(
            (Step("first", 1, "nothing"),)
            if init == "fail_to_begin"
            else _draw_steps(draw, WHOLE_PASSES if needs_whole else PASSES, most=4 if is_fork else 2)
        ),
    )


def _draw_collate(draw: random.Random) -> str | None:
    if draw.random() < 0.4:
        return None
    name = draw.choice(sorted(COLLATE_FUNCTIONS))
    return None if name == "fail_to_collate" and draw.random() < 0.7 else name


def _draw_nature(draw: random.Random, kind: str, length: int, *, is_fork: bool, is_plain: bool) -> Nature:
    draws = tuple(draw.choice(sorted(DRAWS)) for _ in range(draw.randint(0, 4)))
    # torch sends a torch.Generator to a spawned worker in memory that it has freed: what comes of it is a matter of luck.
    generators = [name for name in sorted(HELD) if is_fork or name != "torch"]
    held = draw.choice(["none"] * 4 + generators)
    return Nature(
        length=length,
        kind=kind,
        draws=() if is_plain else draws,
        held="none" if is_plain else held,
        has_cache=draw.random() < 0.2,
        has_counter=draw.random() < 0.3 and not is_plain,
        fails_at=draw.randrange(length + 1) if draw.random() < 0.12 and not is_plain else None,
        error=draw.randrange(len(ERRORS)),
        has_getitems=draw.random() < 0.15,
    )


def _draw_options(draw: random.Random, *, is_fork: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"num_workers": draw.choice((0, 1, 2, 2, 3, 4) if is_fork else (1, 2))}
    if options["num_workers"]:
        if draw.random() < 0.4:
            options["prefetch_factor"] = draw.choice((1, 2, 3, 7))
        if draw.random() < 0.4:
            options["persistent_workers"] = True
        if draw.random() < 0.2:
            options["timeout"] = 60
    if draw.random() < 0.08:
        options["pin_memory"] = True
    return options


def _draw_batching(draw: random.Random) -> dict[str, Any]:
    size = draw.choice((None, 1, 3, 3, 3, 8))
    return {"batch_size": size} | ({"drop_last": draw.random() < 0.3} if size is not None else {})


def _draw_steps(draw: random.Random, ways: Sequence[str], *, most: int) -> tuple[Step, ...]:
    return tuple(
        Step(draw.choice(ways), draw.randint(0, 5), draw.choice(CHANGES)) for _ in range(draw.randint(1, most))
    )
