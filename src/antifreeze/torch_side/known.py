"""The releases of torch on which our suites have passed: no trial is needed there.

The table is written by `python -m matrix`, from the rows in docs/versions/. It is only a shortcut: any
other torch, older, newer or built by the user, is tried once and then known, too.
"""

from __future__ import annotations

KNOWN_TORCH = frozenset({"2.6.0", "2.15.0"})


def is_known(version: str) -> bool:
    """Whether this is one of them, as `2.13.0+cpu` is, and `2.13.0.dev20260401` is not."""
    return version.partition("+")[0] in KNOWN_TORCH
