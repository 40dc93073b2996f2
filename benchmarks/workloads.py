"""What is measured and what must come out: one table, free of torch, so that whoever only reads it starts at once.

A workload has a *kind*, which says what is timed (`reading.py` does it), and a *goal* for some of its figures. Figures:

    rate             batches per second in the steady state
    first_batch      seconds from making the loader to its first batch
    next_epoch       seconds from asking for more after the last batch to the first batch of the next epoch
    next_epoch_kept  the same with persistent_workers=True
    cycle            seconds for an epoch of a training loader and one of a validation loader
    memory           bytes of all processes but the trainer, while the loader runs
    growth           bytes of all processes at the end of an epoch, as a multiple of those at its beginning
    send, receive    seconds of CPU time from an object to what another process opens, and from that to the object

To add a workload: a dataset in `datasets.py` and an entry in `WORKLOADS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

PREFETCH_FACTOR = 2
# With fewer, even the smallest and the largest do not hold the true median with 95 % (6 would just do).
ENOUGH_ROUNDS = 7
# Processes that run or wait for a core, on average over the last minute: more than this, and others are at work.
QUIET_LOAD = 0.5
# From so many usable cores on, the second column of floors holds; below, the first.
MANY_CORES = 16
# Slower than this is worth a word, also where no floor was set: two runs of one engine differ by less.
EVEN = 0.97


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The median of the ratios to torch must reach a floor."""

    floor: float
    with_many_cores: float | None = None
    """The floor from `MANY_CORES` usable cores on; None: the same."""

    def floor_for(self, cores: int) -> float:
        if cores >= MANY_CORES and self.with_many_cores is not None:
            return self.with_many_cores
        return self.floor


@dataclass(frozen=True, slots=True)
class AsFast:
    """As fast as torch: the median at least `EVEN`, and the interval reaches 1."""


@dataclass(frozen=True, slots=True)
class AtMostLater:
    """The median of our seconds minus torch's must be at most this."""

    allowance_s: float


@dataclass(frozen=True, slots=True)
class DatasetOnce:
    """Memory: the dataset once, and as many bare workers as there are (measured in the same run)."""

    dataset_bytes: int


@dataclass(frozen=True, slots=True)
class AtMost:
    """Our median must be at most this, whatever torch's is."""

    limit: float


Goal = AtLeast | AsFast | AtMostLater | DatasetOnce | AtMost


@dataclass(frozen=True, slots=True)
class Steady:
    """Batches per second, once everything runs."""

    seconds: float = 1.0
    """How long the clock runs."""


@dataclass(frozen=True, slots=True)
class Starts:
    """First batches: of the first epoch, of the next one, and of the next one with kept workers."""

    with_kept: bool = True


@dataclass(frozen=True, slots=True)
class Alternating:
    """An epoch of a training loader, an epoch of a validation loader, and again."""

    keep_workers: bool
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Footprint:
    """The first batch, and the memory of all processes but the trainer."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The memory of all processes, the trainer's too, at the beginning and at the end of one epoch."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """No loader: the dataset's way to a clean stem, and in torch's place what pickle itself takes for it."""


Kind = Steady | Starts | Alternating | Footprint | Growth | Crossing
FIGURES: Mapping[type[Kind], tuple[str, ...]] = MappingProxyType(
    {
        Steady: ("rate",),
        Starts: ("first_batch", "next_epoch", "next_epoch_kept"),
        Alternating: ("cycle",),
        Footprint: ("first_batch", "memory"),
        Growth: ("growth",),
        Crossing: ("send", "receive"),
    }
)


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    dataset: str
    """The name of its class in `datasets.py`."""
    batch_size: int
    kind: Kind
    goals: Mapping[str, Goal] = field(default_factory=dict)
    """By figure; a figure without one is only reported."""
    our_dataset: str | None = None
    """antifreeze reads this one, which has the same samples; None: the same dataset as all others."""
    our_options: Mapping[str, Any] = field(default_factory=dict)
    """What antifreeze's loader is given beside what all are given."""
    start_method: str | None = "fork"
    """fork is torch's own default before Python 3.14."""
    workers: int | None = None
    """None: as many as the run has."""
    is_random: bool = False
    """Samples depend on random numbers, which torch draws from one generator per worker."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Engines that are not measured with it, and why."""
    peer_rounds: int | None = None
    """Measure peers in so few rounds, because their start takes many seconds; None: in all of them."""

    @property
    def figures(self) -> tuple[str, ...]:
        figures = FIGURES[type(self.kind)]
        return figures[:-1] if isinstance(self.kind, Starts) and not self.kind.with_kept else figures


NO_WORKERS = {"inline": "has no workers to start"}
AS_WITH_FORK = NO_WORKERS | {
    "torchdata": "starts workers as torch does; left out to keep the run short",
    "spdl": "left out to keep the run short; measured with fork",
    "grain": "always spawns: the figure with fork is the same",
}
BY_INDEX = {
    "spdl": "its loader with worker processes reads a dataset by index",
    "grain": "its loader with worker processes reads a dataset by index",
}
AS_ABOVE = dict.fromkeys(("inline", "torchdata", "spdl", "grain"), "the same as above")
OTHERS = ("inline", "torchdata", "spdl", "grain")
GIB = 1 << 30

WORKLOADS = (
    Workload(
        "float32_38mb",
        "64×3×224×224 float32 from memory, 38 MB a batch",
        "FloatImages",
        64,
        Steady(1.5),
        {"rate": AtLeast(2.5)},
    ),
    Workload(
        "uint8_38mb",
        "256×3×224×224 uint8 from memory, 38 MB a batch",
        "ByteImages",
        256,
        Steady(1.5),
        {"rate": AtLeast(2.5)},
    ),
    Workload("ints", "single ints, 64 a batch", "Integers", 64, Steady(), {"rate": AtLeast(5.0, 12.0)}),
    Workload(
        "dict_of_ten",
        "dict of ten 32-float tensors, 32 a batch",
        "SmallTensors",
        32,
        Steady(),
        {"rate": AtLeast(8.0, 15.0)},
    ),
    Workload(
        "jpeg",
        "JPEG decode (Pillow), random crop and flip, 32 a batch",
        "Photos",
        32,
        Steady(2.0),
        {"rate": AsFast()},
        is_random=True,
    ),
    Workload(
        "stream_of_ints",
        "iterable dataset of single ints, 64 a batch",
        "IntegerStream",
        64,
        Steady(),
        left_out=BY_INDEX,
    ),
    Workload(
        "stream_of_dicts",
        "iterable dataset of dicts of ten 32-float tensors, 32 a batch",
        "SmallTensorStream",
        32,
        Steady(),
        left_out=BY_INDEX,
    ),
    Workload("text", "tokenised text, 8 to 512 tokens, padded, 64 a batch", "Sentences", 64, Steady()),
    Workload("skewed", "1 sample in 10 computes ten times as long, 16 a batch", "Skewed", 16, Steady()),
    Workload(
        "skewed_by_ticket",
        'the same, antifreeze with `seeding="ticket"`',
        "Skewed",
        16,
        Steady(),
        our_options={"seeding": "ticket"},
        left_out=AS_ABOVE,
    ),
    Workload(
        "skewed_single",
        '1 sample in 10 computes ten times as long, one a batch, antifreeze with `seeding="ticket"`',
        "Skewed",
        1,
        Steady(),
        {"rate": AtLeast(1.5)},
        our_options={"seeding": "ticket"},
    ),
    Workload(
        "skewed_single_unordered",
        "the same, antifreeze with `in_order=False` as well",
        "Skewed",
        1,
        Steady(),
        {"rate": AtLeast(2.0)},
        our_options={"seeding": "ticket", "in_order": False},
        left_out=AS_ABOVE,
    ),
    Workload(
        "ints_by_ticket",
        'single ints, 64 a batch, antifreeze with `seeding="ticket"`',
        "Integers",
        64,
        Steady(),
        our_options={"seeding": "ticket"},
        left_out=AS_ABOVE,
    ),
    Workload("waiting", "1 ms of waiting a sample, as for a disk, 16 a batch", "Waiting", 16, Steady()),
    Workload(
        "train_and_validate",
        "training and validation loader in turn, workers not kept",
        "Thumbnails",
        64,
        Alternating(keep_workers=False),
        peer_rounds=3,
    ),
    Workload(
        "train_and_validate_kept",
        "training and validation loader in turn, workers kept",
        "Thumbnails",
        64,
        Alternating(keep_workers=True),
    ),
    Workload(
        "paths_1m",
        "1 million paths, fork",
        "Paths",
        64,
        Starts(),
        {"first_batch": AtMostLater(0.1)},
        left_out=NO_WORKERS,
        peer_rounds=3,
    ),
    Workload(
        "dicts_860k",
        "860,000 annotation dicts, fork",
        "Annotations",
        64,
        Starts(),
        {"first_batch": AtMostLater(0.1)},
        left_out=NO_WORKERS,
        peer_rounds=3,
    ),
    Workload(
        "paths_1m_spawn",
        "1 million paths, spawn",
        "Paths",
        64,
        Starts(with_kept=False),
        start_method="spawn",
        left_out=AS_WITH_FORK,
    ),
    Workload(
        "dicts_860k_spawn",
        "860,000 annotation dicts, spawn",
        "Annotations",
        64,
        Starts(with_kept=False),
        start_method="spawn",
        left_out=AS_WITH_FORK,
    ),
    Workload(
        "array_1gib_spawn",
        "1 GiB array, spawn, 4 workers",
        "Rows",
        64,
        Footprint(),
        {"first_batch": AtLeast(5.0), "memory": DatasetOnce(GIB)},
        start_method="spawn",
        workers=4,
        left_out=AS_WITH_FORK | {"grain": "pickles the array for every worker; left out to keep the run short"},
    ),
    Workload(
        "texts_2m",
        "2 million texts in random order, fork, 4 workers; torch: a list, antifreeze: `packed`",
        "Texts",
        500,
        Growth(),
        {"growth": AtMost(1.05)},
        our_dataset="PackedTexts",
        workers=4,
        left_out=dict.fromkeys(OTHERS, "left out to keep the run short") | NO_WORKERS,
    ),
    Workload(
        "dicts_860k_crossing",
        "860,000 annotation dicts to a clean stem; torch's column: pickle itself",
        "Annotations",
        64,
        Crossing(),
        {"send": AtLeast(0.8), "receive": AtLeast(0.8)},
        left_out=dict.fromkeys(OTHERS, "there is no loader in it"),
    ),
)


def workload_named(name: str) -> Workload:
    return next(workload for workload in WORKLOADS if workload.name == name)
