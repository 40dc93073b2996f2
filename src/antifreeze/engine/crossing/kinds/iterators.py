"""Generators and their like: half-way through code that is running, which only a fork can carry."""

from __future__ import annotations

import csv
import types
from typing import Any, NoReturn

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, OnlyInherited


def plan(handle: Any, luggage: Luggage) -> NoReturn:
    """There is none."""
    name = getattr(handle, "__qualname__", "")
    raise OnlyInherited(f"the {type(handle).__name__} {name}".rstrip() + " is half-way through its code")


KINDS: dict[type, Kind] = {
    types.GeneratorType: Kind(plan),
    types.CoroutineType: Kind(plan),
    types.AsyncGeneratorType: Kind(plan),
    type(csv.reader(())): Kind(plan),
}
