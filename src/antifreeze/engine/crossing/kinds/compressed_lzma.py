"""Files compressed with lzma."""

from __future__ import annotations

import lzma
from typing import Any

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, Reduced
from antifreeze.engine.crossing.kinds.compressed import plan_like_gzip


def plan(handle: Any, luggage: Luggage) -> Reduced:
    """With the format, the limit of memory and the filters, which only its reader knows."""
    options = {} if handle.closed or not handle.readable() else dict(handle._buffer.raw._decomp_args)
    return plan_like_gzip(handle, lzma.LZMAFile, options)


KINDS: dict[type, Kind] = {lzma.LZMAFile: Kind(plan)}
