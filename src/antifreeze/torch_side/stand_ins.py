"""Classes for ours to derive from where a torch does not have its own. None of them is ever made."""

from __future__ import annotations

from typing import Any


class NoIterator:
    """Refuses to be made: loaders are left to torch."""

    def __init__(self, loader: Any) -> None:
        raise AttributeError("this torch has none of the iterators that ours derive from")


class NoWrapper:
    """Stands for torch's `ExceptionWrapper`."""
