"""Files compressed with bz2."""

from __future__ import annotations

import bz2

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, Reduced
from antifreeze.engine.crossing.kinds.compressed import plan_like_gzip


def plan(handle: bz2.BZ2File, luggage: Luggage) -> Reduced:
    """There is nothing to choose for whoever reads it."""
    return plan_like_gzip(handle, bz2.BZ2File, {})


KINDS: dict[type, Kind] = {bz2.BZ2File: Kind(plan)}
