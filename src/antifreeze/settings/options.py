"""All options of a loader, put together: keyword arguments go before the environment, and that before the defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antifreeze.errors import ConfigError
from antifreeze.settings.arguments import Seeding, arguments
from antifreeze.settings.policy import DEFAULT_MAX_LOST, OnError, Policy, Retry
from antifreeze.settings.variables import environment

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
    replay: bool = True
    """Whether an iterable dataset gives the same items when it is read again, so that another worker can take over."""
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
