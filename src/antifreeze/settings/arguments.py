"""The keyword arguments of our `DataLoader`, each checked; None: nothing was said."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from antifreeze.settings.policy import THENS, OnError, Retry
from antifreeze.settings.refusals import is_int, is_number, one_of, refusal

FIXES = ("rng", "shard", "stale")
Seeding = Literal["torch", "ticket"]
SEEDINGS: tuple[str, ...] = get_args(Seeding)


def arguments(loader: Any) -> dict[str, Any]:
    """What was given to a loader of ours, or left to one that was built from its pieces, by the names of the options."""
    if not getattr(loader, "_antifreeze_has_options", False):  # another's class may mean something else by these names
        return dict(getattr(loader, "_antifreeze_inherited", {}))
    given = ((name, read(getattr(loader, argument))) for argument, (name, read) in _ARGUMENTS.items())
    said = {name: value for name, value in given if value is not None}
    return {**said, "worker_threads": loader.worker_threads}  # whose None says something


def bequeath(options: Mapping[str, Any], *, heir: Any) -> None:
    """Give a loader of another class what was given to one of ours."""
    # Past its __setattr__, which Lightning watches: what it sees there it does again on loaders that it builds.
    object.__setattr__(heir, "_antifreeze_inherited", options)


def _read_on_error(value: Any) -> OnError | None:
    if value is None or isinstance(value, Retry) or value in THENS:
        return value  # type: ignore[no-any-return]
    raise refusal("on_error", value, "on_error", f"it can be {one_of(THENS)}, or Retry()", 'on_error="skip"')


def _read_max_lost(value: Any) -> int | float | None:
    if value is None or (is_int(value) and value >= 0) or (isinstance(value, float) and 0 < value <= 1):
        return value  # type: ignore[no-any-return]
    raise refusal(
        "max_lost", value, "max_lost", "it is a count (an int) or a fraction (a float from 0 to 1)", "max_lost=20"
    )


def _read_span(name: str) -> Callable[[Any], float | None]:
    def read(value: Any) -> float | None:
        if value is None or (is_number(value) and 0 < value < math.inf):
            return None if value is None else float(value)
        raise refusal(name, value, name, "it is a number of seconds greater than 0", f"{name}=60")

    return read


def _read_flag(name: str) -> Callable[[Any], bool | None]:
    def read(value: Any) -> bool | None:
        if value is None or isinstance(value, bool):
            return value
        raise refusal(name, value, name, "it is True or False", f"{name}=False")

    return read


def _read_fix(value: Any) -> frozenset[str] | None:
    names = (value,) if isinstance(value, str) else value
    if value is None or (isinstance(names, list | tuple | set | frozenset) and set(names) <= set(FIXES)):
        return None if value is None else frozenset(names)
    raise refusal("fix", value, "fix", f"it is any of {', '.join(map(repr, FIXES))}", f"fix={FIXES!r}")


def _read_seeding(value: Any) -> Seeding | None:
    if value is None or value in SEEDINGS:
        return value  # type: ignore[no-any-return]
    raise refusal("seeding", value, "seeding", f"it can be {one_of(SEEDINGS)}", 'seeding="ticket"')


def _read_file(value: Any) -> Path | None:
    if value is None or (isinstance(value, str | os.PathLike) and os.fspath(value)):
        return None if value is None else Path(value)
    raise refusal("ledger_file", value, "ledger_file", "it is the name of a file", 'ledger_file="ledger.jsonl"')


_ARGUMENTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "on_error": ("on_error", _read_on_error),
    "max_lost": ("max_lost", _read_max_lost),
    "stall_after": ("stall_after_s", _read_span("stall_after")),
    "sample_timeout": ("sample_timeout_s", _read_span("sample_timeout")),
    "hedge": ("hedge", _read_flag("hedge")),
    "replay": ("replay", _read_flag("replay")),
    "fix": ("fix", _read_fix),
    "seeding": ("seeding", _read_seeding),
    "ledger_file": ("ledger_file", _read_file),
}
