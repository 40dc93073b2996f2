"""Every option, once: its argument, its environment variable, its flag of `antifreeze run`, and what help says of it.

A value is checked where it is given: an argument when the loader is built, a flag before the script starts. Arguments go
before the environment, and the environment before the defaults. The environment is read each time a loader is built or
iterated over, so that a program may set a variable after it has imported us.

To add an option: a field of `Options`, a line in `OPTIONS`, and its argument in `loader.py`. A test compares the three.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antifreeze.errors import ConfigError
from antifreeze.option_values import COUNT, FILE, FIX, FLAG, LIMIT, ON_ERROR, SEEDING, SPAN, THREADS, Seeding, Values
from antifreeze.policy import DEFAULT_MAX_LOST, OnError, Policy, Retry

OLDEST_TORCH = (2, 6)
"""For those who cannot ask torch itself, as `torch_side.self_check` does; with an older one, loaders run on torch's own
iterator."""

STALL_AFTER_S = 10.0
# For a sample at which workers are blocked while others get on: well before a distributed job's own 10 minutes.
ONE_BLOCKED_S = 300.0
# When all workers are blocked: a file server may take long to come back.
ALL_BLOCKED_S = 1800.0


@dataclass(frozen=True, slots=True)
class Options:
    """All that can be set for a loader, beside torch's own."""

    policy: Policy = field(default_factory=Policy)
    stall_after_s: float = STALL_AFTER_S
    """A sample that takes longer than this, and than this loader's samples usually do, may be called stuck."""
    sample_timeout_s: float | None = None
    """When to give up a sample at which workers are blocked; None: after 5 minutes, or 30 if all workers are blocked."""
    hedge: bool = True
    """Whether a second worker tries what another one is stuck at."""
    replay: bool | None = None
    """Whether what a worker has read comes again when it is asked for again, so that another worker can take over; None:
    yes, but not what came through a pipe or a socket from before the workers."""
    fix: frozenset[str] = frozenset()
    """What of torch's silently wrong results is to be put right: `rng`, `shard`, `stale`."""
    seeding: Seeding = "torch"
    """What a sample's random numbers follow from: those before it in the same worker, as torch does it, or its ticket."""
    ledger_file: Path | None = None
    """Where all that deviates from a calm run is written, as JSON lines."""
    stats: bool = False
    """Whether a summary is printed at the end."""
    worker_threads: int | None = 1
    """How many threads the pools of native libraries may use in each worker; None: as many as they like."""
    watch_s: float | None = None
    """When to report a sample that the trainer itself is stuck at; None: never, the user has set no such time."""

    @property
    def one_blocked_s(self) -> float:
        """How long one sample may block workers while others get on."""
        return self.sample_timeout_s or ONE_BLOCKED_S

    @property
    def all_blocked_s(self) -> float:
        """How long all workers may be blocked."""
        return self.sample_timeout_s or ALL_BLOCKED_S


# --- the table


@dataclass(frozen=True, slots=True)
class Option:
    """One option, wherever it is given."""

    name: str
    """Among those that `options_of` puts together: a field of `Options`, or a part of its policy."""
    values: Values
    help: str
    """What it does: a line of `antifreeze run --help` and of the table in the README."""
    argument: str | None = None
    """Of `DataLoader`; None: it has none."""
    flag: str | None = None
    """Of `antifreeze run`; None: it has neither a flag nor a variable."""
    metavar: str | None = None
    """What stands for the value of the flag in the help; None: the flag has no value."""
    can_be_none: bool = False
    """Whether None is a value; else it means that nothing was said."""

    @property
    def variable(self) -> str | None:
        """Of the environment; the flag sets it, `--no-hedge` to 0."""
        if self.flag is None:
            return None
        return "ANTIFREEZE_" + self.flag.removeprefix("--").removeprefix("no-").replace("-", "_").upper()


OPTIONS = (
    Option(
        "on_error",
        ON_ERROR,
        "what to do about a sample that fails: `raise` (the default), `skip` it, or `replace` it by another one",
        "on_error",
        "--on-error",
        "WHAT",
    ),
    Option(
        "retries",
        COUNT,
        "fetch a sample that fails again, up to N times, before that; in code: `on_error=Retry(N)`",
        None,
        "--retry",
        "N",
    ),
    Option(
        "max_lost",
        LIMIT,
        "how many samples of an epoch may be skipped or replaced before that is an error: `20`, or `1%` (in code: `0.01`); "
        "default: a tenth",
        "max_lost",
        "--max-lost",
        "LIMIT",
    ),
    Option(
        "stall_after_s",
        SPAN,
        "report a sample as stuck when it is blocked for this time, and takes far longer than others; default: 10 s",
        "stall_after",
        "--stall-after",
        "TIME",
    ),
    Option(
        "sample_timeout_s",
        SPAN,
        "give up a sample that blocks workers for this time; default: 5 minutes while other workers make progress, "
        "30 if all are blocked",
        "sample_timeout",
        "--sample-timeout",
        "TIME",
    ),
    Option(
        "hedge",
        FLAG,
        "start no second worker for the work that another one is stuck at",
        "hedge",
        "--no-hedge",
    ),
    Option(
        "replay",
        FLAG,
        "an iterable dataset gives other items when it is read again, so the death of its worker is an error",
        "replay",
        "--no-replay",
    ),
    Option(
        "fix",
        FIX,
        "correct what torch gets wrong without a word, any of `rng`, `shard`, `stale`",
        "fix",
        "--fix",
        "WHAT",
    ),
    Option(
        "seeding",
        SEEDING,
        "what the random numbers of a batch follow from: `torch` (the default), or `ticket`: the same batches with any "
        "number of workers",
        "seeding",
    ),
    Option(
        "ledger_file",
        FILE,
        "write all that deviates from a calm run to FILE, as JSON lines, as it happens",
        "ledger_file",
        "--ledger",
        "FILE",
    ),
    Option("stats", FLAG, "print where the time went when the program ends", None, "--stats"),
    Option(
        "worker_threads",
        THREADS,
        "how many threads native libraries may use in each worker; default: 1; `None` lifts the limit",
        "worker_threads",
        can_be_none=True,
    ),
)


def arguments(loader: Any) -> dict[str, Any]:
    """What was given to a loader of ours, or left to one that was built from its pieces, by the names of the options."""
    if not getattr(loader, "_antifreeze_has_options", False):  # another's class may mean something else by these names
        return dict(getattr(loader, "_antifreeze_inherited", {}))
    said = {}
    for option in OPTIONS:
        if option.argument is None:
            continue
        value = getattr(loader, option.argument)
        if value is not None or option.can_be_none:
            said[option.name] = option.values.given(value, name=option.argument)
    return said


def bequeath(options: Mapping[str, Any], *, heir: Any) -> None:
    """Give a loader of another class what was given to one of ours."""
    # Past its __setattr__, which Lightning watches: what it sees there it does again on loaders that it builds.
    object.__setattr__(heir, "_antifreeze_inherited", options)


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What the environment says, by the names of the options; what it does not say is not there."""
    return {
        option.name: option.values.read(environ[option.variable], where=f"environment variable {option.variable}")
        for option in OPTIONS
        if option.variable is not None and environ.get(option.variable)
    }


def options_of(loader: Any, environ: Mapping[str, str] = os.environ) -> Options:
    """The options of a loader: its own if it is one of ours, else those of the environment."""
    said, own = environment(environ), arguments(loader)
    if "on_error" in own:  # all that the environment says about failed samples is another's wish
        said.pop("retries", None)
    given = {**said, **own}
    policy = _policy(given.pop("on_error", "raise"), given.pop("retries", 0), given.pop("max_lost", DEFAULT_MAX_LOST))
    if policy.then == "replace":
        check_replaceable(loader, where="on_error" if "on_error" in own else "environment variable ANTIFREEZE_ON_ERROR")
    spans = [given[name] for name in ("stall_after_s", "sample_timeout_s") if name in given]
    return Options(policy, watch_s=min(spans, default=None), **given)


def _policy(on_error: OnError, retries: int, max_lost: int | float) -> Policy:
    if isinstance(on_error, Retry):
        return Policy(on_error.then, on_error.times, float(on_error.backoff_s), max_lost)
    return Policy(on_error, retries, Retry().backoff_s if retries else 0.0, max_lost)


def check_replaceable(loader: Any, *, where: str) -> None:
    """Refuse `replace` where nobody can draw another index."""
    dataset = loader.dataset
    try:
        is_finite = len(dataset) >= 0
    except (TypeError, NotImplementedError):
        is_finite = False
    if not is_finite or not hasattr(dataset, "__getitem__"):
        why = f"a {type(dataset).__qualname__} has no len(), and another index cannot be drawn"
    elif isinstance(dataset, Mapping):
        why = f"a {type(dataset).__qualname__} has keys, and indices are drawn from 0 to len() - 1"
    elif (index := _an_index(loader)) is not None and not hasattr(index, "__index__"):
        why = f"the sampler gives {index!r}, and indices are drawn from 0 to len() - 1"
    else:
        return
    raise ConfigError('on_error="replace" cannot work with this loader', where=where, why=why, try_='on_error="skip"')


def _an_index(loader: Any) -> Any:
    """One of the indices that the sampler will give, if that can be known without asking the sampler for it."""
    sampler = getattr(loader, "sampler", None)
    batches = getattr(loader, "batch_sampler", None)
    if isinstance(batches, Sequence) and batches and isinstance(batches[0], Sequence) and batches[0]:
        return batches[0][0]
    return sampler[0] if isinstance(sampler, Sequence) and sampler else None


# --- whether the engine runs at all


class Mode(enum.Enum):
    """What the environment wants of us."""

    OFF = "off"
    """Torch's own iterator, always."""
    ON = "on"
    """Our engine; torch's own iterator, with a warning, for what it does not carry."""
    REQUIRE = "require"
    """Our engine; an error that names the reason for what it does not carry."""


_MODES = {
    "0": Mode.OFF,
    "off": Mode.OFF,
    "": Mode.ON,
    "1": Mode.ON,
    "on": Mode.ON,
    "require": Mode.REQUIRE,
}


def mode(environ: Mapping[str, str] = os.environ) -> Mode:
    """Read the variable `ANTIFREEZE`."""
    word = environ.get("ANTIFREEZE", "")
    try:
        return _MODES[word]
    except KeyError:
        raise ConfigError(
            f"ANTIFREEZE={word} is not a mode of antifreeze",
            where="environment variable ANTIFREEZE",
            why="it can be 1 or on (the default), 0 or off, or require",
            try_="unset ANTIFREEZE",
        ) from None
