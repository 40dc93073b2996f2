"""Every option, from a keyword argument or from the environment, checked where it is read.

The environment is read each time somebody asks, so that a program may set a variable after it has imported us. What a
keyword argument says goes before what the environment says, and that before the default.
"""

from __future__ import annotations

import enum
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from antifreeze.errors import ConfigError

Then = Literal["raise", "skip", "replace"]
THENS: tuple[str, ...] = get_args(Then)
# A tenth of the data missing is no accident of single files any more, and what is lost is in the ledger before that.
DEFAULT_MAX_LOST = 0.1
STALL_AFTER_S = 10.0
# For a sample at which workers are blocked while others get on: well before a distributed job's own 10 minutes.
ONE_BLOCKED_S = 300.0
# When nothing gets on at all: a file server may take long to come back.
ALL_BLOCKED_S = 1800.0


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


@dataclass(frozen=True, slots=True)
class Retry:
    """For `on_error=`: fetch a sample that failed again, with random generators as they were before it.

    So a failure that does not come back leaves no trace in the batch: it is, bit for bit, that of a calm run.
    """

    times: int = 3
    """How often a sample is fetched again."""
    _: KW_ONLY
    backoff_s: float = 0.1
    """Seconds to wait before the first time; twice as long before each one after it, but never more than 30."""
    then: Then = "raise"
    """What to do when it has failed every time."""

    def __post_init__(self) -> None:
        if not _is_int(self.times) or self.times < 1:
            raise _bad("times", self.times, "Retry()", "a sample is fetched again once or more", "Retry(3)")
        if not _is_number(self.backoff_s) or not 0 <= self.backoff_s < math.inf:
            raise _bad("backoff_s", self.backoff_s, "Retry()", "it is a number of seconds", "Retry(3, backoff_s=0.1)")
        if self.then not in THENS:
            raise _bad("then", self.then, "Retry()", f"it can be {_one_of(THENS)}", 'Retry(3, then="skip")')


OnError = Then | Retry


@dataclass(frozen=True, slots=True)
class Policy:
    """What is done about a sample that fails."""

    then: Then = "raise"
    """At last, when it has failed as often as it may."""
    retries: int = 0
    """How often it is fetched again before that."""
    backoff_s: float = 0.0
    max_lost: int | float = DEFAULT_MAX_LOST
    """How many samples of an epoch may be skipped or replaced: an int is a count, a float a fraction."""

    @property
    def is_strict(self) -> bool:
        """Whether an exception is raised as soon as it comes, as torch does it."""
        return self.then == "raise" and not self.retries


@dataclass(frozen=True, slots=True)
class Options:
    """All that can be set for a loader, beside torch's own."""

    policy: Policy = Policy()
    stall_after_s: float = STALL_AFTER_S
    """A sample that takes longer than this, and than this loader's samples usually do, may be called stuck."""
    sample_timeout_s: float | None = None
    """When to give up a sample at which workers are blocked; None: after 5 minutes, or 30 if nothing at all gets on."""
    hedge: bool = True
    """Whether a second worker tries what another one is stuck at."""
    ledger_file: Path | None = None
    """Where all that deviates from a calm run is written, as JSON lines."""
    stats: bool = False
    """Whether a summary is printed at the end."""

    @property
    def one_blocked_s(self) -> float:
        """How long one sample may block workers while others get on."""
        return self.sample_timeout_s or ONE_BLOCKED_S

    @property
    def all_blocked_s(self) -> float:
        """How long nothing at all may get on."""
        return self.sample_timeout_s or ALL_BLOCKED_S


def options_of(loader: Any, environ: Mapping[str, str] = os.environ) -> Options:
    """The options of a loader: its own if it is one of ours, else those of the environment."""
    said, own = environment(environ), _arguments(loader)
    if "on_error" in own:  # all that the environment says about failed samples is another's wish
        said.pop("retries", None)
    given = {**said, **own}
    policy = _policy(given.pop("on_error", "raise"), given.pop("retries", 0), given.pop("max_lost", DEFAULT_MAX_LOST))
    if policy.then == "replace":
        check_replaceable(loader, where="on_error" if "on_error" in own else "environment variable ANTIFREEZE_ON_ERROR")
    return Options(policy, **given)


def _arguments(loader: Any) -> dict[str, Any]:
    """What was given to a loader of ours, by the names of the options."""
    if not getattr(loader, "_antifreeze_has_options", False):  # another's class may mean something else by these names
        return {}
    given = ((name, read(getattr(loader, argument))) for argument, (name, read) in _ARGUMENTS.items())
    return {name: value for name, value in given if value is not None}


def _policy(on_error: OnError, retries: int, max_lost: int | float) -> Policy:
    if isinstance(on_error, Retry):
        return Policy(on_error.then, on_error.times, float(on_error.backoff_s), max_lost)
    return Policy(on_error, retries, Retry().backoff_s if retries else 0.0, max_lost)


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What the environment says, by the names of the options; what it does not say is not there."""
    return {
        name: read_variable(variable, environ[variable])
        for variable, (name, _) in _VARIABLES.items()
        if environ.get(variable)
    }


def read_variable(variable: str, text: str, *, where: str | None = None) -> Any:
    """The value that this text has as an environment variable; `where` if it stands elsewhere."""
    _, read = _VARIABLES[variable]
    return read(text, where or f"environment variable {variable}")


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


# --- keyword arguments


def _read_on_error(value: Any) -> OnError | None:
    if value is None or isinstance(value, Retry) or value in THENS:
        return value  # type: ignore[no-any-return]
    raise _bad("on_error", value, "on_error", f"it can be {_one_of(THENS)}, or Retry()", 'on_error="skip"')


def _read_max_lost(value: Any) -> int | float | None:
    if value is None or (_is_int(value) and value >= 0) or (isinstance(value, float) and 0 < value <= 1):
        return value  # type: ignore[no-any-return]
    raise _bad(
        "max_lost", value, "max_lost", "it is a count (an int) or a fraction (a float from 0 to 1)", "max_lost=20"
    )


def _read_span(name: str) -> Callable[[Any], float | None]:
    def read(value: Any) -> float | None:
        if value is None or (_is_number(value) and 0 < value < math.inf):
            return None if value is None else float(value)
        raise _bad(name, value, name, "it is a number of seconds greater than 0", f"{name}=60")

    return read


def _read_hedge(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise _bad("hedge", value, "hedge", "it is True or False", "hedge=False")


def _read_file(value: Any) -> Path | None:
    if value is None or (isinstance(value, str | os.PathLike) and os.fspath(value)):
        return None if value is None else Path(value)
    raise _bad("ledger_file", value, "ledger_file", "it is the name of a file", 'ledger_file="ledger.jsonl"')


_ARGUMENTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "on_error": ("on_error", _read_on_error),
    "max_lost": ("max_lost", _read_max_lost),
    "stall_after": ("stall_after_s", _read_span("stall_after")),
    "sample_timeout": ("sample_timeout_s", _read_span("sample_timeout")),
    "hedge": ("hedge", _read_hedge),
    "ledger_file": ("ledger_file", _read_file),
}


# --- environment variables


def _parse_on_error(text: str, where: str) -> str:
    if text in THENS:
        return text
    raise _bad_text(text, where, f"it can be {_one_of(THENS)}", "skip")


def _parse_retry(text: str, where: str) -> int:
    if text.isdecimal():
        return int(text)
    raise _bad_text(text, where, "it says how often a sample that failed is fetched again", "3")


def _parse_max_lost(text: str, where: str) -> int | float:
    try:
        value = int(text) if text.isdecimal() else float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1
    if (isinstance(value, int) and value >= 0) or 0 < value <= 1:
        return value
    raise _bad_text(text, where, "it is a count (20) or a share (1% or 0.01)", "1%")


_UNITS_S = {"s": 1, "m": 60, "h": 3600}


def _parse_span(text: str, where: str) -> float:
    number, unit = (text[:-1], _UNITS_S[text[-1]]) if text[-1:] in _UNITS_S else (text, 1)
    try:
        span_s = float(number) * unit
    except ValueError:
        span_s = -1
    if 0 < span_s < math.inf:
        return span_s
    raise _bad_text(text, where, "it is a span of time: 10, 10s or 2m", "10s")


_FLAGS = {"0": False, "off": False, "1": True, "on": True}


def _parse_flag(text: str, where: str) -> bool:
    if text in _FLAGS:
        return _FLAGS[text]
    raise _bad_text(text, where, "it can be 1 or on, 0 or off", "1")


def _parse_file(text: str, where: str) -> Path:
    if text and not text.endswith("/"):
        return Path(text)
    raise _bad_text(text, where, "it is the name of a file", "ledger.jsonl")


_VARIABLES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "ANTIFREEZE_ON_ERROR": ("on_error", _parse_on_error),
    "ANTIFREEZE_RETRY": ("retries", _parse_retry),
    "ANTIFREEZE_MAX_LOST": ("max_lost", _parse_max_lost),
    "ANTIFREEZE_STALL_AFTER": ("stall_after_s", _parse_span),
    "ANTIFREEZE_SAMPLE_TIMEOUT": ("sample_timeout_s", _parse_span),
    "ANTIFREEZE_HEDGE": ("hedge", _parse_flag),
    "ANTIFREEZE_LEDGER": ("ledger_file", _parse_file),
    "ANTIFREEZE_STATS": ("stats", _parse_flag),
}


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _one_of(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _bad(name: str, value: Any, where: str, why: str, try_: str) -> ConfigError:
    return ConfigError(f"{name}={value!r} cannot work", where=where, why=why, try_=try_)


def _bad_text(text: str, where: str, why: str, example: str) -> ConfigError:
    try_ = f"{where} {example}" if where.startswith("-") else f"{where.rsplit(maxsplit=1)[-1]}={example}"
    return ConfigError(f"{text!r} cannot work here", where=where, why=why, try_=try_)
