"""What is done about a sample that fails: raise, fetch it again, leave it out, put another one in its place."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import Any, Literal, get_args

from antifreeze.errors import ConfigError

Then = Literal["raise", "skip", "replace"]
THENS: tuple[str, ...] = get_args(Then)
# A tenth of the data missing is no accident of single files any more, and what is lost is in the ledger before that.
DEFAULT_MAX_LOST = 0.1


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
        if not is_int(self.times) or self.times < 1:
            raise _refusal("times", self.times, "a sample is fetched again once or more", "Retry(3)")
        if not is_number(self.backoff_s) or not 0 <= self.backoff_s < math.inf:
            raise _refusal("backoff_s", self.backoff_s, "it is a number of seconds", "Retry(3, backoff_s=0.1)")
        if self.then not in THENS:
            raise _refusal("then", self.then, f"it can be {one_of(THENS)}", 'Retry(3, then="skip")')


OnError = Then | Retry


@dataclass(frozen=True, slots=True)
class Policy:
    """What is done about a sample that fails."""

    then: Then = "raise"
    """What happens when it has failed as often as it may."""
    retries: int = 0
    """How often it is fetched again before that."""
    backoff_s: float = 0.0
    max_lost: int | float = DEFAULT_MAX_LOST
    """How many samples of an epoch may be skipped or replaced: an int is a count, a float a fraction."""

    @property
    def is_strict(self) -> bool:
        """Whether an exception is raised as soon as it comes, as torch does it."""
        return self.then == "raise" and not self.retries


def is_int(value: Any) -> bool:
    """Whether it is a whole number, NumPy's included; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a real number, NumPy's included; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def one_of(words: tuple[str, ...]) -> str:
    """All that it can be."""
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _refusal(name: str, value: Any, why: str, try_: str) -> ConfigError:
    return ConfigError(f"{name}={value!r} cannot work", where="Retry()", why=why, try_=try_)
