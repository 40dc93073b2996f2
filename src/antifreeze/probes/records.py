"""What passes between the processes of a trial and the one that watches it: one frozen class per record. Pure data.

Which record lies in which file, and how it is written and read, is the part of `record_files`. Times are
`time.monotonic`, one clock for the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from antifreeze.doctor.facts import Loader, Place, Raised, SlowSample, Stuck
from antifreeze.probes.watch import Verdict

WRITTEN_S = 8.0
"""What is measured of the loader as it is written."""


# --- what is wanted, and what is tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of an examination."""

    batches: int
    """Enough to say that a trial went well."""
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """What is to be tried."""

    number: int
    loader: int
    engine: str
    workers: int
    is_as_written: bool = False
    purpose: str = "trial"
    """`epoch` (the start of a second one), `deadly` (samples that a worker died of or hung at, in the trainer), `orphans`
    (the trainer will be killed)."""
    passes: int = 1
    """Of an `epoch`: 2 if the first must be seen by the same workers."""
    is_first_whole: bool = False
    """Whether the first of two passes is to reach its end."""
    seconds: float = WRITTEN_S
    """Of progress, after the first batch."""
    batches: int = 50
    """As `Limits.batches`."""
    prefetch: int | None = None
    """Batches that each worker makes ahead."""
    start_method: str | None = None
    """None: there are no workers."""
    is_stream: bool = False
    batch_size: int = 0
    """0: unknown."""
    batches_expected: int | None = None
    """In an epoch; None: this cannot be told."""

    @property
    def name(self) -> str:
        return f"t{self.number:02d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStart:
    """A plan, and the process that carries it out."""

    plan: TrialPlan
    pid: int
    can_end: bool
    """Whether END_SIGNAL ends the trial."""
    began: float


@dataclass(frozen=True, slots=True)
class ProcessState:
    """How a process was when it last wrote."""

    stage: str
    """`init`, `fetch`, `collate`, `idle`, `left`; of the trainer `start`, `next`, `fetch`, `collate`, `shutdown`,
    `ended`."""
    since: float
    samples: int
    """That it has finished."""
    batches: int
    slowest_s: float
    """Of its samples so far."""
    sample: str
    """The one that it is at."""


# --- lines of a log: what a worker and the trainer may both write; `Raised` is one of these


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFault:
    """Something of ours went wrong."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """A process ends itself; where the dataset did it in the trainer, it would have ended if we had not caught it."""

    status: int
    how: str
    """`os._exit`, `sys.exit`."""
    place: Place | None
    sample: str | None


# --- lines of a worker's log; `SlowSample` is one of these


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentResult:
    """A result, or an exception, could not be pickled, so the trainer never gets it."""

    raised: Raised


@dataclass(frozen=True, slots=True, kw_only=True)
class NoneSample:
    """The dataset returned None for it."""

    sample: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteSample:
    """There is a NaN or an infinite value in it."""

    sample: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstItems:
    """The digests of the first samples, as far as they can be compared."""

    digests: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTotals:
    """After each batch: what it has done so far."""

    samples: int
    fetch_s: float
    collate_s: float
    first_s: float | None
    """What its first sample took."""
    private_bytes: int | None
    """Its private memory; None: not measured this time."""
    contents: Mapping[str, int]
    """Of the samples since the last such record: sample → digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedForWorkerInfo:
    """The dataset called `get_worker_info`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorsAtStart:
    """States of random number generators, as hashes."""

    process: Mapping[str, str]
    """Of the global ones, by module."""
    held: Mapping[str, str]
    """Of those in the dataset, by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorDrawn:
    """A generator of the dataset was drawn from for the first time."""

    path: str
    state: str
    """What it has been since."""


# --- lines of the trainer's log


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """How a worker was before it was asked to end."""

    worker: int
    pid: int
    exitcode: int | None
    """None: it ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeShutdown:
    """How all was when the last batch had come, or something else."""

    workers: tuple[WorkerExit, ...] = ()
    """Of torch's loader only."""
    trainer_bytes: int | None
    """Its private memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderShutdown:
    """The loader ended its workers."""

    seconds: float
    error: str = ""
    """What it raised on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnd:
    """How far the trial came."""

    seconds: float
    is_ended: bool
    """Whether the watcher ended it."""
    passes: int
    batches: int
    """Of the last pass."""
    first_batch_s: float | None
    last_s: float
    is_whole_epoch: bool
    batch_bytes: int
    batch_tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerTotals:
    """Of a trial without workers."""

    samples: int
    fetch_s: float
    collate_s: float
    first_s: float | None
    slowest: tuple[SlowSample, ...]
    none_samples: tuple[str, ...]
    non_finite: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwallowedErrors:
    """As `Trial.swallowed`."""

    by_sample: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SameSeeds:
    """As `Trial.same_seeds`."""

    same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LocksHeld:
    """As `Death.locks_held`."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongSamples:
    """As `Trial.wrong`."""

    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalIndices:
    """As `Trial.originals`."""

    by_sample: Mapping[str, str]


WorkerRecord = (
    Raised
    | UnsentResult
    | ProcessExit
    | SlowSample
    | NoneSample
    | NonFiniteSample
    | FirstItems
    | WorkerTotals
    | AskedForWorkerInfo
    | GeneratorsAtStart
    | GeneratorDrawn
    | ProbeFault
)
TrainerRecord = (
    Raised
    | ProcessExit
    | BeforeShutdown
    | LoaderShutdown
    | TrialEnd
    | TrainerTotals
    | SwallowedErrors
    | SameSeeds
    | LocksHeld
    | WrongSamples
    | OriginalIndices
)
Record = WorkerRecord | TrainerRecord | Loader


# --- what is seen from outside


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFromOutside:
    """What the watcher saw of a trial."""

    verdict: Verdict | None = None
    """None: the trial ended by itself."""
    seconds: float | None = None
    stuck: tuple[Stuck, ...] = ()
    long: tuple[Stuck, ...] = ()
    """Workers that took long for a sample, whatever came of it."""
    orphans: tuple[Stuck, ...] = ()
    lock_share: float | None = None
    is_cut_short: bool = False
    """Whether the time for all was over while it went on."""
    has_trainer_ended: bool = False
    """In the middle of the trial."""
    exitcode: int | None = None
    """Of that trainer."""
    is_oom: bool | None = None
    stderr: str = ""
