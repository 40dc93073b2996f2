"""What is in a sample or a batch: a hash to compare it by, whether its numbers are finite, how it differs from others."""

from __future__ import annotations

import ctypes
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

try:
    import numpy as np
except ImportError:  # torch works without it
    HAS_NUMPY = False
else:
    HAS_NUMPY = True

# More of one array is not looked at: a megabyte takes a millisecond or less.
MOST_BYTES = 1 << 20
MOST_PARTS = 1000


class Content(NamedTuple):
    """What a sample holds."""

    digest: int | None
    """None: there is something in it that we cannot compare."""
    is_finite: bool


class _Unknown(Exception):
    """There is something in it that we cannot compare."""


def content_of(sample: Any) -> Content:
    reader = _Reader()
    try:
        reader.read(sample)
        return Content(reader.digest, reader.is_finite)
    except Exception:  # noqa: BLE001 - of whatever a class of the user's does when it is looked at
        return Content(None, reader.is_finite)


class _Reader:
    def __init__(self) -> None:
        self.digest = 0
        self.is_finite = True
        self._parts = 0

    def read(self, thing: Any) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise _Unknown
        if isinstance(thing, dict):
            for key, value in thing.items():
                self._add(repr(key).encode())
                self.read(value)
        elif isinstance(thing, list | tuple):
            self._add(b"%d" % len(thing))
            for each in thing:
                self.read(each)
        elif isinstance(thing, torch.Tensor):
            self._read_tensor(thing)
        elif type(thing).__module__ == "numpy":
            self._read_array(thing)
        elif thing is None or isinstance(thing, bool | int | float | complex | str):
            self.is_finite &= not isinstance(thing, float) or math.isfinite(thing)
            self._add(repr(thing).encode())
        elif isinstance(thing, bytes | bytearray):
            self._add(thing[:MOST_BYTES])
        else:
            raise _Unknown

    def _read_tensor(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            raise _Unknown
        part = tensor.detach().reshape(-1)[: max(1, MOST_BYTES // max(1, tensor.element_size()))].contiguous()
        if part.dtype in (torch.float16, torch.float32, torch.float64):
            # numpy's: torch would start threads for it, which are slow where processors are busy
            self.is_finite &= bool((np.isfinite(part.numpy()) if HAS_NUMPY else torch.isfinite(part)).all())
        self._add(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        octets = part.view(torch.uint8)
        self._add(ctypes.string_at(octets.data_ptr(), octets.numel()))

    def _read_array(self, array: Any) -> None:
        array = np.asarray(array)
        if array.dtype.hasobject:
            raise _Unknown
        part = array.reshape(-1)[: max(1, MOST_BYTES // max(1, array.itemsize))]
        if array.dtype.kind == "f":
            self.is_finite &= bool(np.isfinite(part).all())
        self._add(f"{array.dtype}{array.shape}".encode())
        self._add(part.tobytes())

    def _add(self, piece: Any) -> None:
        self.digest = zlib.crc32(piece, self.digest)


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """All tensors in a batch, as torch would send them."""
    parts = [batch]
    for _ in range(MOST_PARTS):
        if not parts:
            return
        thing = parts.pop()
        if isinstance(thing, torch.Tensor):
            yield thing
        elif isinstance(thing, dict):
            parts.extend(thing.values())
        elif isinstance(thing, list | tuple):
            parts.extend(thing)
        elif hasattr(thing, "__dict__"):
            parts.extend(vars(thing).values())


class Odd(NamedTuple):
    """The sample of a batch that is not like the others."""

    place: int
    how: str


def odd_one(samples: Sequence[Any]) -> Odd | None:
    """The first sample whose form differs from that of most others, and in what; None: all are alike, or none are."""
    forms = [dict(_form(sample)) for sample in samples]
    if len(forms) < 2:
        return None
    for path in dict.fromkeys(path for form in forms for path in form):
        texts = [form.get(path, "missing") for form in forms]
        (usual, count), *others = Counter(texts).most_common()
        if others and (count > 1 or len(forms) == 2):
            # Of two, the one that lacks something is the odd one.
            odd = next((text for text, _ in others if text == "missing"), others[0][0])
            if usual == "missing" and len(forms) == 2:
                odd, usual = usual, others[0][0]
            return Odd(texts.index(odd), _difference(path, odd, usual))
    return None


def _difference(path: str, odd: str, usual: str) -> str:
    name = path or "it"
    if odd == "missing":
        return f"{name} is missing"
    if usual == "missing":
        return f"{name} is there, and the others have none"
    return f"{name} is {odd}, the others {usual}"


def _form(thing: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Path → what stands there: the type, or the shape of an array."""
    shape = getattr(thing, "shape", None)
    if shape is not None and hasattr(thing, "dtype"):
        yield path, f"of shape {tuple(shape)}"
    elif isinstance(thing, dict) and depth < 4:
        for key, value in thing.items():
            yield from _form(value, f"{path}[{key!r}]", depth + 1)
    elif isinstance(thing, tuple | list) and depth < 4:
        yield path, f"a {type(thing).__name__} of {len(thing)}"
        for place, value in enumerate(thing[:20]):
            yield from _form(value, f"{path}[{place}]", depth + 1)
    else:
        yield path, "None" if thing is None else f"a {type(thing).__name__}"
