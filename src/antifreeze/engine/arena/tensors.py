"""A tensor over memory that it does not own: the cheapest way that torch has for it."""

from __future__ import annotations

from typing import Any

import torch

try:
    import numpy as np
except ImportError:  # torch works without it, and so do we: a little slower
    np = None  # type: ignore[assignment]

_from_numpy = torch.from_numpy
_frombuffer = torch.frombuffer


def _numpy_dtypes() -> dict[torch.dtype, Any]:
    known = {}
    for code in np.typecodes["All"]:
        try:
            known[_from_numpy(np.empty(0, code)).dtype] = np.dtype(code)
        except (TypeError, RuntimeError):  # torch has not got it, or torch has not got numpy
            continue
    return known


_NUMPY = _numpy_dtypes() if np is not None else {}


def tensor_over(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> torch.Tensor:
    """A dense tensor, not empty, whose bytes are those of the buffer from this offset on; it keeps the buffer alive."""
    numpy_dtype = _NUMPY.get(dtype)
    if numpy_dtype is not None:
        return _from_numpy(np.ndarray(shape, numpy_dtype, buffer, offset))
    count = 1
    for length in shape:
        count *= length
    # Not a view of the flat one: torch treats views differently when they are changed in place.
    return _frombuffer(buffer, dtype=dtype, count=count, offset=offset).resize_(shape)
