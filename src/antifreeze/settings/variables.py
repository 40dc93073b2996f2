"""The environment variables `ANTIFREEZE_…`, and the same texts as options of `antifreeze run`, each checked."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from antifreeze.settings.arguments import FIXES
from antifreeze.settings.policy import THENS
from antifreeze.settings.refusals import one_of, refusal_of_text


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


def _parse_on_error(text: str, where: str) -> str:
    if text in THENS:
        return text
    raise refusal_of_text(text, where, f"it can be {one_of(THENS)}", "skip")


def _parse_retry(text: str, where: str) -> int:
    if text.isdecimal():
        return int(text)
    raise refusal_of_text(text, where, "it says how often a sample that failed is fetched again", "3")


def _parse_max_lost(text: str, where: str) -> int | float:
    try:
        value = int(text) if text.isdecimal() else float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1
    if (isinstance(value, int) and value >= 0) or 0 < value <= 1:
        return value
    raise refusal_of_text(text, where, "it is a count (20) or a share (1% or 0.01)", "1%")


_UNITS_S = {"s": 1, "m": 60, "h": 3600}


def parse_span(text: str, where: str) -> float:
    """Seconds, minutes or hours as people write them: 10, 10s, 2m; `where` it stands."""
    number, unit = (text[:-1], _UNITS_S[text[-1]]) if text[-1:] in _UNITS_S else (text, 1)
    try:
        span_s = float(number) * unit
    except ValueError:
        span_s = -1
    if 0 < span_s < math.inf:
        return span_s
    raise refusal_of_text(text, where, "it is a span of time: 10, 10s or 2m", "10s")


_FLAGS = {"0": False, "off": False, "1": True, "on": True}


def _parse_flag(text: str, where: str) -> bool:
    if text in _FLAGS:
        return _FLAGS[text]
    raise refusal_of_text(text, where, "it can be 1 or on, 0 or off", "1")


def _parse_fix(text: str, where: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    if names <= set(FIXES):
        return names
    raise refusal_of_text(text, where, f"it is a list of {', '.join(FIXES)}", ",".join(FIXES))


def _parse_file(text: str, where: str) -> Path:
    if text and not text.endswith("/"):
        return Path(text)
    raise refusal_of_text(text, where, "it is the name of a file", "ledger.jsonl")


_VARIABLES: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "ANTIFREEZE_ON_ERROR": ("on_error", _parse_on_error),
    "ANTIFREEZE_RETRY": ("retries", _parse_retry),
    "ANTIFREEZE_MAX_LOST": ("max_lost", _parse_max_lost),
    "ANTIFREEZE_STALL_AFTER": ("stall_after_s", parse_span),
    "ANTIFREEZE_SAMPLE_TIMEOUT": ("sample_timeout_s", parse_span),
    "ANTIFREEZE_HEDGE": ("hedge", _parse_flag),
    "ANTIFREEZE_REPLAY": ("replay", _parse_flag),
    "ANTIFREEZE_FIX": ("fix", _parse_fix),
    "ANTIFREEZE_LEDGER": ("ledger_file", _parse_file),
    "ANTIFREEZE_STATS": ("stats", _parse_flag),
}
