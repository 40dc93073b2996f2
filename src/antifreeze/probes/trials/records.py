"""What passes between the processes of a trial and the one that watches it: one frozen class per record. Pure data.

Which record lies in which file, and how it is written and read, is the part of `record_files`. Times are
`time.monotonic`, one clock for the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from antifreeze.doctor.facts import Loader, Place, Raised, SlowSample, Stuck
from antifreeze.probes.trials.hang_detector import TrialVerdict

WRITTEN_S = 8.0
"""What is measured of the loader as it is written."""


# --- what is wanted, and what is tried


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLimits:
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
    """As `TrialLimits.batches`."""
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


# --- lines of a log: of a worker, and of a trainer that fetches itself; `Raised` and `SlowSample` are of these, too


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NoneSample:
    """The dataset returned None for it."""

    sample: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteSample:
    """There is a NaN or an infinite value in it."""

    sample: str


@dataclass(slots=True, kw_only=True)
class FetchTotals:
    """What a process has done so far: a worker writes it after each batch, the trainer at the end."""

    samples: int = 0
    fetch_s: float = 0.0
    collate_s: float = 0.0
    first_s: float | None = None
    """What the first sample took."""
    slowest_s: float = 0.0

    def add(self, seconds: float) -> None:
        """One more sample."""
        self.samples += 1
        self.fetch_s += seconds
        self.first_s = seconds if self.first_s is None else self.first_s
        self.slowest_s = max(self.slowest_s, seconds)

    @property
    def warm_up_s(self) -> float | None:
        """What the first sample took more than the others."""
        if self.first_s is None or self.samples < 2:
            return None
        return self.first_s - (self.fetch_s - self.first_s) / (self.samples - 1)


# --- lines of a worker's log


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentResult:
    """A result, or an exception, could not be pickled, so the trainer never gets it."""

    raised: Raised


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstItems:
    """The digests of the first samples, as far as they can be compared."""

    digests: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleContents:
    """Sample → digest, of some more samples."""

    digests: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateMemory:
    """Of a worker, after so many samples."""

    amount_bytes: int
    samples: int


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


@dataclass(slots=True, kw_only=True)
class TrialProgress:
    """How far a trial has come, written when it has come to its end."""

    passes: int = 0
    batches: int = 0
    """Of the last pass."""
    seconds: float = 0.0
    """To the end of the trial."""
    first_batch_s: float | None = None
    last_s: float = 0.0
    """To the last batch."""
    is_whole_epoch: bool = False
    batch_bytes: int = 0
    batch_tensors: int = 0
    is_ended: bool = False
    """Whether the watcher ended it."""


@dataclass(slots=True, kw_only=True)
class FoundLater:
    """What the trainer found out about a trial when it was over, as the fields of `Trial`; the last record has it all."""

    swallowed: Mapping[str, str] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    originals: Mapping[str, str] = field(default_factory=dict)
    same_seeds: bool | None = None
    locks_held: tuple[str, ...] = ()
    """As of `Death`."""


WorkerRecord = (
    Raised
    | UnsentResult
    | ProcessExit
    | SlowSample
    | NoneSample
    | NonFiniteSample
    | FetchTotals
    | FirstItems
    | SampleContents
    | PrivateMemory
    | AskedForWorkerInfo
    | GeneratorsAtStart
    | GeneratorDrawn
    | ProbeFault
)
TrainerRecord = (
    Raised
    | ProcessExit
    | SlowSample
    | NoneSample
    | NonFiniteSample
    | FetchTotals
    | BeforeShutdown
    | LoaderShutdown
    | TrialProgress
    | FoundLater
)
Record = WorkerRecord | TrainerRecord | Loader


# --- what is seen from outside


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFromOutside:
    """What the watcher saw of a trial."""

    verdict: TrialVerdict | None = None
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
