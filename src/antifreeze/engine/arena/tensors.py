"""A tensor over memory that it does not own: the cheapest way that torch has for it.

The memory is also an attribute of the Python object of the tensor's storage, which lives as long as the storage does.
torch moves a storage (`share_memory_()`, a queue of `torch.multiprocessing`) by giving it other memory and letting go of
what it had; but an array that shows the tensor holds the storage, and goes on reading where the memory was.
"""

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
    for code in (
        np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?"
    ):  # a string has no size, by which torch 2.6 divides
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
        tensor = _from_numpy(np.ndarray(shape, numpy_dtype, buffer, offset))
    else:
        count = 1
        for length in shape:
            count *= length
        # Not a view of the flat one: torch treats views differently when they are changed in place.
        tensor = _frombuffer(buffer, dtype=dtype, count=count, offset=offset).resize_(shape)
    tensor.untyped_storage()._antifreeze_memory = buffer  # type: ignore[attr-defined]
    return tensor


def storage_over(buffer: Any, offset: int, length: int) -> torch.UntypedStorage:
    """A storage whose bytes are those of the buffer from this offset on; it keeps the buffer alive."""
    storage = _frombuffer(buffer, dtype=torch.uint8, count=length, offset=offset).untyped_storage()
    storage._antifreeze_memory = buffer  # type: ignore[attr-defined]
    return storage
