"""How a batch lies in memory, be that a slot or, when it is small, the message itself.

    | regions: the bytes of tensors and arrays, each at a multiple of 64 | structure | table of regions |

The structure says how the batch is put together. Most loaders give batches that look the same every time: dicts, lists
and tuples of plain tensors, of the same shapes at the same places. Such a *form* (`forms.py`) is described once; from
then on its number stands in for it, and the structure holds only the few values that are not tensors. Any other batch
is pickled (`pickled.py`), and a table of regions follows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from antifreeze.torch_side.tensors import PLAIN_KEYS, dispatch_keys

ALIGNMENT = 64

# Seen: labels of 3 KB that a user kept held 384 MB of slots. Copying 64 KiB costs about 5 µs.
COPY_BELOW = 64 << 10
# A batch smaller than that is copied in one piece, which whatever is kept of it would keep. What is less than this share
# of the piece is copied once more, for itself; but not of a piece that is no larger than what any tensor takes in torch.
SHARE = 16
ALWAYS_WHOLE = 4 << 10

DTYPES: tuple[torch.dtype, ...] = tuple(
    sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
)
"""All dtypes of this torch in an order that both sides agree on."""
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


class Parcel(NamedTuple):
    """Where to find what in the memory of a batch."""

    form: int
    """The number of its form, as its worker counts; 0: the structure is a pickle."""
    offset: int
    """Where the regions end and the structure begins."""
    structure_bytes: int
    table_bytes: int

    @property
    def end(self) -> int:
        """How many bytes the batch takes."""
        return self.offset + self.structure_bytes + self.table_bytes


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether this is an ordinary strided tensor on the CPU: neither sparse, nested, quantized nor conjugated."""
    return dispatch_keys(tensor).raw_repr() in PLAIN_KEYS


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a plain tensor has just the strides that its shape implies. (A size of one can have any: torch keeps it.)"""
    if not tensor.is_contiguous():
        return False
    shape = tensor.shape
    if 1 not in shape and 0 not in shape:
        return True
    implied, step = [], 1
    for length in reversed(shape):
        implied.append(step)
        step *= max(length, 1)
    return tensor.stride() == tuple(reversed(implied))


def is_small_part(size: int, whole: int) -> bool:
    """Whether something of this size is to be copied for itself, and not to keep the whole piece that it came in."""
    return size * SHARE < whole and whole > ALWAYS_WHOLE


def aligned(size: int) -> int:
    """The next multiple of the alignment."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
