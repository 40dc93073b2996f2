"""All that is known about a target: frozen, plain, to and from JSON. Pure data.

A target is a program that trains, examined from its source, by running it up to its first batch, or while it is
frozen. Whoever asks the machine (`probes/`) fills these in; checks only read them. What nobody looked at, or could not
see, is None or empty, and a check that lacks a fact stays silent.

Paths of files are as the target knows them; a `Place` shows them relative to the directory of the script.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, Self

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int
    function: str = ""
    text: str = ""
    """The line itself, stripped."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


# --- the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where the target runs."""

    cpus: int
    """That the machine has."""
    usable_cpus: int
    """That this process may use at once: affinity and cgroup quota considered, rounded up."""
    cpu_quota: float | None = None
    """Processors' worth of time that the cgroup grants; None: there is no limit."""
    memory_available_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """Of the cgroup; None: there is none."""
    shm_total_bytes: int | None = None
    """Of /dev/shm; None: there is none."""
    shm_free_bytes: int | None = None
    descriptors_soft: int | None = None
    descriptors_hard: int | None = None
    start_method: str | None = None
    """Python's default here."""
    thread_settings: Mapping[str, str] = field(default_factory=dict)
    """The environment variables that size thread pools, those that are set: OMP_NUM_THREADS …"""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of python, torch and whatever else is installed that checks care for."""
    temporary_directory: str | None = None
    ptrace_scope: int | None = None
    """Of Yama: 0 everybody of this user may look into a process, 1 parents only, 2 root only, 3 nobody."""


# --- the source, as it is written


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`self.name = call(…)` in `__init__` of a dataset or a method that only it calls; or in the body of the class."""

    name: str
    value: str
    """The dotted name of what is called, with imports seen through: `zipfile.ZipFile`, `open`, `numpy.load`; or the kind of
    expression: `lambda`, `generator`, `list`, `listcomp`, `dict`, `set`, `fileno` (of any file), `other`."""
    mode: str | None = None
    """The mode argument, of calls that open something and where it is a constant."""
    place: Place
    used_at: Place | None = None
    """The first line of `__getitem__`, `__iter__`, or of a method that they call, that uses it."""
    used_as: tuple[str, ...] = ()
    """How it is used there: attributes called on it (`read`, `seek`, `map`), `with`, `[]`, `()`, `next`, `fileno`;
    functions of the system that it is given to (`os.read`, `os.pread`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Something in the code that runs per sample, and where."""

    kind: str
    """One of: `returns-none-in-except`, `call-without-timeout`, `exit`, `lock-around-read`, `writes-fixed-path`,
    `changes-self`, `process-pool`, `endless-loop`, `next`."""
    what: str
    """The crucial words: `requests.get`, `sys.exit`, `self.lock`, `self.bad`, `multiprocessing.Pool`."""
    place: Place
    also: Place | None = None
    """A second line that belongs to it: of `changes-self`, where the attribute is read outside of the class; of
    `returns-none-in-except`, the `except`."""
    made_by: str = ""
    """Of `lock-around-read`: the dotted name of what made the lock, `multiprocessing.Lock`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetClass:
    """A class of the user's that is, or looks like, a dataset."""

    name: str
    place: Place
    is_iterable: bool = False
    is_local: bool = False
    """Whether it is defined inside a function."""
    is_under_main_guard: bool = False
    assignments: tuple[Assignment, ...] = ()
    sights: tuple[Sight, ...] = ()
    asks_for_worker_info: bool | None = None
    """Whether `get_worker_info`, or a name that suggests sharding (rank, world_size, shard, split), occurs in it or in
    functions of the same file that it calls; None: it cannot be told, for it hands its work to code that is not here."""
    pickles_itself: bool = False
    """Whether it says itself what of it is pickled: `__getstate__`, `__reduce__`."""
    changed_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Methods other than `__init__` and those that run per sample → the attributes of self that they assign, of those
    that are read per sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedOrder:
    """`DistributedSampler(…)`, not told to leave the order as it is."""

    place: Place
    shuffles: bool | None = None
    """None: it cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderCall:
    """`DataLoader(…)`."""

    place: Place
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Keyword → its source text; positional arguments under torch's names for them; `**` if there are others, unknown."""
    name: str | None = None
    """The variable that it is assigned to."""
    is_module_level: bool = False
    """Not in a function and not under a main guard."""
    workers: int | None = None
    """num_workers, where that is a constant, or a name for one, or left out."""
    start_method: str | None = None
    """Where its `multiprocessing_context` says so literally."""
    datasets: tuple[str, ...] = ()
    """The classes of the user's that its dataset is made of, those inside of Subset and the like included."""
    guarded: tuple[Place, ...] = ()
    """Definitions under a main guard that its workers need: the classes of its dataset, its collate_fn, its worker_init_fn;
    their `function` is the name of what is defined."""
    is_in_loop: bool = False
    """Whether it is made anew in every turn of a loop."""
    distributed: DistributedOrder | None = None
    """Of the sampler that it is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderLoop:
    """`for … in loader`."""

    place: Place
    loader: Place | None = None
    """The `DataLoader(…)` that it iterates, if that can be told."""
    is_module_level: bool = False
    """Not in a function and not under a main guard."""
    called_from: Place | None = None
    """The call at module level, under no main guard, that leads to the function that it is in."""
    kept: tuple[Place, ...] = ()
    """Lines that put (a part of) a batch, or a numpy view of it, into something that outlives the loop, without a copy."""
    keeps_all: bool = False
    """Whether these lines together put there all that a batch consists of."""
    breaks: tuple[Place, ...] = ()
    epochs: Place | None = None
    """The loop around it."""
    dataset_calls: tuple[Place, ...] = ()
    """Calls in the loop around it, of methods on its dataset that change what is read per sample (`ds.set_epoch(epoch)`),
    and assignments of such attributes (`ds.epoch = epoch`); their `text` is the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInit:
    """A function that is given as `worker_init_fn`."""

    name: str
    place: Place
    seeds: tuple[Place, ...] = ()
    """Lines that seed a global generator."""
    seeds_from: tuple[str, ...] = ()
    """The dotted names and parameters that the seeds are made of: `worker_id`, `torch.initial_seed`, `base_seed`; nothing:
    constants only."""
    is_fixed: bool | None = None
    """Whether the seeds are made of nothing but constants and the number of the worker; None: also of names that say `seed`
    and whose value is not known here."""
    used_by: tuple[Place, ...] = ()
    """The `DataLoader(…)` that it is given to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """A start method that is set when it is settled already."""

    settled: Place
    """The call that settles it: `set_start_method`, or `get_start_method()`."""
    set_again: Place
    """A call of `set_start_method` that always comes after that, without `force` and without a `try` around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What the program says, of the script and of the user's modules that it imports."""

    script: str
    files: tuple[str, ...] = ()
    datasets: tuple[DatasetClass, ...] = ()
    loaders: tuple[LoaderCall, ...] = ()
    loops: tuple[LoaderLoop, ...] = ()
    worker_inits: tuple[WorkerInit, ...] = ()
    start_methods: tuple[Place, ...] = ()
    """Calls of `set_start_method`; their `text` is the call."""
    start_method: str | None = None
    """That these calls set, if they agree on one."""
    start_method_clashes: tuple[Clash, ...] = ()
    tells_epochs: bool = False
    """Whether `set_epoch` occurs anywhere, or a library is imported that calls it for its users."""
    thread_settings: tuple[Place, ...] = ()
    """Calls that raise or set the number of threads (`torch.set_num_threads`, `cv2.setNumThreads`)."""
    has_main_guard: bool = False
    ignored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`file:line` → the codes that a comment there asks us not to tell: `# antifreeze: ignore[AF204]`; `*` for all."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Files that cannot be parsed, and why."""


# --- the live objects, before workers start


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """What keeps a loader from being sent to another process."""

    path: str
    """`dataset.transform.ops[2]`."""
    what: str
    """`the function <lambda> at train.py:31`, `a _thread.lock`."""
    why: str
    """In pickle's words."""
    place: Place | None = None
    """Of the code that it is, or where the attribute is assigned."""
    is_main_guard: bool = False
    """It can be pickled, but a spawned process cannot find it: it is defined under the main guard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Something live within reach of a dataset (or collate_fn …) that a forked worker shares or loses."""

    path: str
    kind: str
    """`file`, `archive` (zip, npz, tar), `hdf5`, `lmdb`, `sqlite`, `socket`, `executor`, `thread`, `loop`, `lock` (of
    threads), `process-lock`, `generator` (of random numbers), `iterator`, `cuda`, `shared-memory`, `native`."""
    what: str
    """In a few words: `an open file '/data/x.bin' (mode 'rb')`."""
    place: Place | None = None
    """Where the attribute is assigned."""
    is_deadly: bool = False
    """Whether our engine would not fork with it."""
    why: str = ""
    """What a fork does to it, where it is deadly."""
    mode: str | None = None
    """Of what was opened: `rb`, `w`."""
    shares_position: bool = False
    """Whether it reads a file at a position that all forked workers share and move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """A container of very many Python objects, or a big array, within reach of the dataset."""

    path: str
    type: str
    count: int
    """Of objects in it; 0 for an array."""
    bytes: int
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePool:
    """A native library with a thread pool that is loaded in the trainer."""

    library: str
    """`sklearn`, `torch`, `polars`, `tokenizers`, `cv2`, `numpy`: the package that brought it."""
    kind: str
    """`openmp`, `openblas`, `mkl`, `rayon`, `opencv` …"""
    threads: int
    is_used: bool | None = None
    """Whether it has started its threads."""
    why: str = ""
    """What a fork does to it, where we know it to be deadly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """A live DataLoader, caught when it was iterated for the first time."""

    number: int
    built_at: Place | None = None
    iterated_at: Place | None = None
    num_workers: int = 0
    batch_size: int | None = None
    prefetch_factor: int | None = None
    drop_last: bool = False
    start_method: str | None = None
    """That its workers would be started with."""
    persistent_workers: bool = False
    pin_memory: bool = False
    timeout_s: float = 0.0
    in_order: bool = True
    is_iterable: bool = False
    dataset: str = ""
    """Its type."""
    dataset_at: Place | None = None
    samples: int | None = None
    batches: int | None = None
    has_default_collate: bool = True
    collate_at: Place | None = None
    """Of a function of the user's."""
    sampler: str = ""
    """The type of a sampler or batch sampler of the user's own; empty: torch's."""
    worker_init_at: Place | None = None
    obstacles: tuple[Obstacle, ...] = ()
    """To spawn and forkserver, with pickle's own means."""
    crosses: bool | None = None
    """Whether our engine could send it to a clean stem."""
    held: tuple[Held, ...] = ()
    bulks: tuple[Bulk, ...] = ()
    threads: tuple[str, ...] = ()
    """Names of the Python threads beside the main one."""
    pools: tuple[NativePool, ...] = ()
    is_cuda_initialized: bool = False
    descriptors: int | None = None
    """The limit of open files that the program had by then: it may have set one itself."""
    unseen: tuple[str, ...] = ()
    """What could not be looked at, or not to its end in time: fields above (`obstacles`, `held`, `bulks`, `pools` …), or
    several at once: `settings`, `code`, `objects`, `program`."""


# --- trials


class Outcome(StrEnum):
    """How a trial ended."""

    OK = "ok"
    """Its batches came, all of an epoch or as many as were asked for."""
    HANG = "hang"
    ERROR = "error"
    """An exception reached the loop."""
    CRASH = "crash"
    """A worker, or the program, was ended by a signal or by itself."""
    SHORT = "short"
    """The epoch ended, without an error, before all samples had come."""
    SLOW = "slow"
    """It was still making progress when its time was over: nothing else is to be said against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception, and where it comes from."""

    type: str
    """`KeyError`, `PIL.UnidentifiedImageError`."""
    message: str
    stage: str
    """`fetch` (the dataset), `collate`, `init` (worker_init_fn), `sampler`, `start` (of the workers), `send` (a result that
    could not be pickled), `receive` (in the trainer, taking a batch out of the queue), `script` (before any batch)."""
    place: Place | None = None
    """The innermost line of the user's."""
    frames: tuple[Place, ...] = ()
    """The innermost first, at most a dozen."""
    worker: int | None = None
    sample: str | None = None
    """The index that was being fetched; of `collate`, the sample that is not like the others, if that can be told."""
    batch: tuple[str, ...] = ()
    """The indices of the batch."""
    culprit: str = ""
    """Of `send`: path and type of what cannot be pickled; of `collate`: the key or shape that differs."""
    culprit_at: Place | None = None
    swallowed: str = ""
    """Of a None sample: the exception that the dataset's own `except` swallowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A worker that ended before its work was done."""

    worker: int
    """-1: the trainer itself."""
    pid: int
    exitcode: int | None
    """As multiprocessing gives it: negative for a signal."""
    sample: str | None = None
    place: Place | None = None
    """Where it was, if it could tell: faulthandler's stack, `sys.exit`, `os._exit`."""
    how: str = ""
    """`SIGKILL`, `SIGSEGV`, `sys.exit`, `os._exit`, `exit`."""
    is_oom: bool | None = None
    """Whether the kernel counted an out-of-memory kill at the same time; None: there is no such counter."""
    locks_held: tuple[str, ...] = ()
    """Paths of process-shared locks in the dataset that nobody can take since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A process that made no progress when we looked."""

    role: str
    """`worker`, `trainer`, `child` (of either)."""
    worker: int | None = None
    pid: int
    sample: str | None = None
    seconds: float = 0.0
    """For how long it has been at this sample."""
    typical_s: float | None = None
    """What samples took before; None: this was the first."""
    frames: tuple[Place, ...] = ()
    """Its Python stack, the innermost first, libraries included."""
    place: Place | None = None
    """The innermost line of the user's."""
    stage: str | None = None
    """`fetch`, `collate`, `init`, `idle` (waits for the trainer), `send`, `left` (has done its work, and should end)."""
    waits_in: str | None = None
    """`lock`, `file lock`, `socket`, `pipe`, `terminal` (somebody to type), `poll`, `sleep`, `child` (its end), `disk`;
    None: it runs, or nobody can tell."""
    state: str = ""
    """The kernel's letter: R runs, S sleeps, D cannot be woken, T is stopped."""
    cpu_share: float = 0.0
    """Of one processor, while we looked."""
    library: str = ""
    """The package that the innermost frames belong to, or the native library that it waits in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSample:
    """One of the slowest samples."""

    sample: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMemory:
    """What a worker has for itself."""

    worker: int
    first_bytes: int
    """Private memory when it had made its first batch."""
    last_bytes: int
    samples: int = 0
    """That it had fetched in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The same loader, on one engine, with one number of workers."""

    loader: int
    engine: str
    """`torch` or `antifreeze`."""
    workers: int
    outcome: Outcome
    is_as_written: bool = False
    """Whether this is the loader just as the script has it."""
    start_method: str | None = None
    batches: int = 0
    samples: int = 0
    seconds: float = 0.0
    """From iter() to the last batch or to the end of the trial."""
    first_batch_s: float | None = None
    is_whole_epoch: bool = False
    epochs: int = 1
    """Passes that were begun: what went wrong, did so in the last one; all the figures are of the first."""
    raised: Raised | None = None
    deaths: tuple[Death, ...] = ()
    stuck: tuple[Stuck, ...] = ()
    orphans: tuple[Stuck, ...] = ()
    """Workers that lived on after their trainer had been killed."""
    stderr: str = ""
    """The last of what the program wrote there meanwhile."""
    batch_bytes: int | None = None
    """Of tensors in the largest batch."""
    batch_tensors: int | None = None
    fetch_s: float | None = None
    """Of all workers together."""
    collate_s: float | None = None
    lock_share: float | None = None
    """Of the workers' time in fetching that they waited for a lock that one of the others held."""
    shutdown_s: float | None = None
    """How long it took to leave the loop while workers were busy."""
    slowest: tuple[SlowSample, ...] = ()
    warm_up_s: float | None = None
    """What the first sample of a worker took more than the others."""
    memory: tuple[WorkerMemory, ...] = ()
    trainer_bytes: int | None = None
    non_finite: tuple[str, ...] = ()
    """Indices of samples with NaN or infinite values."""
    none_samples: tuple[str, ...] = ()
    swallowed: Mapping[str, str] = field(default_factory=dict)
    """Of None samples: index → what was raised and caught on the way, in a sentence, when it was fetched once more."""
    wrong: tuple[str, ...] = ()
    """Indices whose content differs from what the trainer itself gets, where that gets the same twice."""
    originals: Mapping[str, str] = field(default_factory=dict)
    """Of samples of a `Subset` that are named here: index in it → index in the whole dataset."""
    same_draws: tuple[str, ...] = ()
    """Paths of generators in the dataset that several workers drew the same numbers from."""
    same_seeds: bool | None = None
    """Whether the global generators of a worker started in the same state in two epochs."""
    same_items: int | None = None
    """How many workers of an iterable dataset began with the same items; None: it is not one."""
    has_asked_for_worker_info: bool | None = None
    """Whether the dataset called `get_worker_info` in a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How the script itself fared until its first batch was asked for."""

    command: str
    outcome: Outcome
    reached_a_loader: bool = False
    """Whether it iterated one, with workers or without."""
    is_trainer_a_child: bool | None = None
    """Whether the process that iterates it was started by the script, and is not the script itself."""
    exitcode: int | None = None
    seconds: float = 0.0
    raised: Raised | None = None
    stuck: tuple[Stuck, ...] = ()
    stderr: str = ""
    fault: str = ""
    """What went wrong on our side in the examination, with its traceback."""


# --- a program that is running


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPicture:
    """What one thread is at."""

    id: int
    name: str = ""
    frames: tuple[Place, ...] = ()
    """The innermost first."""
    is_main: bool = False
    has_gil: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    """The variables of the user's innermost function in it, where they were asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPicture:
    """One process of a running program."""

    pid: int
    parent: int
    role: str
    """`trainer`, `worker` (of torch's loader), `our-worker`, `stem`, `child`, `resource-tracker`, `fork-server`, `launcher`
    (what started the trainers: torchrun, a shell)."""
    worker: int | None = None
    command: str = ""
    state: str = ""
    """The kernel's letter, as of `Stuck`; Z: it has ended, and its parent has not looked."""
    exitcode: int | None = None
    """Of one that has ended, as of `Death`."""
    waits_in: str | None = None
    """As of `Stuck`."""
    channel: str = ""
    """The kernel's name for where it waits."""
    cpu_share: float = 0.0
    """Of one processor, while we looked."""
    seconds: float = 0.0
    """Since it was started."""
    still_s: float = 0.0
    """For how long it has not moved at all, as far as we know: no processor time, no bytes, the same stack; 0: it moves."""
    same_place_s: float = 0.0
    """For how long we have seen it at the same sample (a worker), or in the same call of a function of the user's."""
    stage: str | None = None
    """Of a worker, as of `Stuck`; of a trainer: `next` (in the loader, waiting for a batch), `fetch` (it loads itself),
    `start`, `close` (it starts its workers, or waits for their end), `step` (anywhere else)."""
    place: Place | None = None
    """The innermost line of the user's in its main thread."""
    sample: str | None = None
    """Index of the sample that a worker is at, or a trainer without workers."""
    batch: tuple[str, ...] = ()
    """The indices of the batch that it is at, the first few."""
    rss_bytes: int = 0
    threads: tuple[ThreadPicture, ...] = ()
    native: tuple[str, ...] = ()
    """Native functions below the innermost Python frame, if they could be had."""
    lock: str = ""
    """The futex or file lock that it waits for, so that those who wait for the same one can be seen."""
    peer: str = ""
    """The other end of the socket that it waits for, or the file."""
    waits_for: tuple[int, ...] = ()
    """Processes of this program that could end its wait."""
    tracer: int = 0
    rank: int | None = None
    """Its number among the processes of a distributed training."""
    world_size: int | None = None
    """How many of them there are, here and on other machines."""
    why_no_stack: str = ""
    """What is in the way; empty if it could be seen."""
    to_see_stack: str = ""
    """The command that would let us see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is known about a target."""

    machine: Machine | None = None
    source: Source | None = None
    run: Run | None = None
    loaders: tuple[Loader, ...] = ()
    trials: tuple[Trial, ...] = ()
    processes: tuple[ProcessPicture, ...] = ()
    """Of a running program; the trainer comes first."""

    def loader(self, number: int | None) -> Loader | None:
        return next((loader for loader in self.loaders if loader.number == number), None)

    def trial(self, loader: int, *, engine: str, workers: int) -> Trial | None:
        found = (
            trial for trial in self.trials if (trial.loader, trial.engine, trial.workers) == (loader, engine, workers)
        )
        return next(found, None)

    def as_written(self, loader: int) -> Trial | None:
        """The trial of torch's loader just as the script has it."""
        return next((trial for trial in self.trials if trial.loader == loader and trial.is_as_written), None)

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(self)}, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.from_plain(json.loads(text))

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        if plain.get("schema") != SCHEMA:
            raise ValueError(f"these facts have schema {plain.get('schema')!r}, and this version reads {SCHEMA}")
        made = made_of(cls, {name: value for name, value in plain.items() if name != "schema"})
        assert isinstance(made, cls)
        return made


def made_of(kind: Any, plain: Any) -> Any:
    """A fact from what JSON made of it: the reverse of `dataclasses.asdict`."""
    if plain is None:
        return None
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return made_of(next(each for each in arguments if each is not types.NoneType), plain)
    if origin is tuple:
        return tuple(made_of(arguments[0], each) for each in plain)
    if origin is Mapping:
        return {key: made_of(arguments[1], value) for key, value in plain.items()}
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        hints = _hints(kind)
        return kind(**{name: made_of(hints[name], value) for name, value in plain.items()})
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(plain)
    return plain


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
