"""What a user can see of a value, as text: two values with the same portrait are the same to the last bit."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from differential.loaders.samples import Box

ADDRESS = re.compile(r"0x[0-9a-f]+")


class CannotPortray(BaseException):
    """A fault of this module, which must not be taken for an error of a loader."""


def portray(value: Any) -> str:
    """The portrait of a value, and which of its tensors and arrays overlap in memory."""
    try:
        overlaps = _overlaps(list(_memories(value)))
        return _portray(value) + (f" overlaps {overlaps}" if overlaps else "")
    except Exception as error:
        raise CannotPortray(f"{type(value)}") from error


def _portray(value: Any) -> str:
    for kinds, portrayer in PORTRAYERS:
        if isinstance(value, kinds):
            return portrayer(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ", ".join(_portray(getattr(value, field.name)) for field in dataclasses.fields(value))
        return f"{_name(value)}({fields})"
    return f"{_name(value)}({ADDRESS.sub('0x', repr(value))})"


def _tensor(value: torch.Tensor) -> str:
    traits = [_name(value), str(value.dtype).removeprefix("torch."), str(tuple(value.shape)), str(value.device)]
    traits += [name for name in ("requires_grad", "is_leaf") if getattr(value, name)]
    traits += [name for name in ("is_conj", "is_neg", "is_inference") if getattr(value, name)()]
    if vars(value):
        traits.append(repr(sorted(vars(value).items(), key=str)))
    if value.device.type == "meta":
        return " ".join(traits)
    plain = value.detach() if type(value) is torch.Tensor else value.detach().as_subclass(torch.Tensor)
    if value.layout != torch.strided:
        return " ".join([*traits, str(value.layout), str(plain.to_dense().tolist())])
    if value.is_quantized:
        plain = plain.int_repr()
    return " ".join([*traits, f"strides {tuple(value.stride())}", _tensor_digest(plain)])


def _tensor_digest(tensor: torch.Tensor) -> str:
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return digest(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")


def _array(value: np.ndarray) -> str:
    writeable = "writeable" if value.flags.writeable else "read-only"
    shape = f"{value.dtype.str} {value.shape} strides {value.strides} {writeable}"
    return f"{_name(value)} {shape} {digest(repr(value.tolist()).encode())}"


def _mapping(value: dict[Any, Any]) -> str:
    items = ", ".join(f"{_portray(key)}: {_portray(each)}" for key, each in value.items())
    extra = getattr(value, "__dict__", None)
    return f"{_name(value)}{{{items}}}" + (f" {extra}" if extra else "")


def _sequence(value: list[Any] | tuple[Any, ...]) -> str:
    return f"{_name(value)}[{', '.join(_portray(each) for each in value)}]"


def _set(value: set[Any] | frozenset[Any]) -> str:
    return f"{_name(value)}{{{', '.join(sorted(map(_portray, value)))}}}"


def _name(value: Any) -> str:
    return type(value).__name__


PORTRAYERS: list[tuple[type | tuple[type, ...], Callable[[Any], str]]] = [
    (torch.Tensor, _tensor),
    (np.ndarray, _array),
    (dict, _mapping),
    ((list, tuple), _sequence),
    ((set, frozenset), _set),
    (Box, lambda box: f"Box({_portray(box.inside)})"),
]


def _memories(value: Any) -> Iterator[tuple[int, int]]:
    """From where to where each tensor and array in a value lies in memory."""
    if isinstance(value, torch.Tensor):
        has_memory = value.layout == torch.strided and value.device.type == "cpu" and value.numel() > 0
        yield (value.data_ptr(), value.data_ptr() + _extent(value)) if has_memory else (0, 0)
    elif isinstance(value, np.ndarray):
        yield np.lib.array_utils.byte_bounds(value) if value.size else (0, 0)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _memories(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _memories(each)


def _extent(value: torch.Tensor) -> int:
    steps = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return (steps + 1) * value.element_size()


def _overlaps(memories: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [
        (i, j)
        for j, (start, end) in enumerate(memories)
        for i, (other_start, other_end) in enumerate(memories[:j])
        if start < other_end and other_start < end
    ]


def portray_random_states() -> str:
    """The states of the generators that every process has."""
    python, numpy = repr(random.getstate()).encode(), repr(np.random.get_state()).encode()
    return f"torch {digest_of_generator(torch.default_generator)} random {digest(python)} numpy {digest(numpy)}"


def digest_of_generator(generator: torch.Generator) -> str:
    """A short text that is another one when the generator is in another state."""
    return digest(generator.get_state().numpy().tobytes())


def digest(content: bytes) -> str:
    """A short text that is another one for other bytes."""
    return hashlib.md5(content).hexdigest()[:12]


def portray_error(error: BaseException) -> str:
    """Type, arguments, attributes, the lines of the message, and of the frames in it those of this package."""
    arguments = [each if isinstance(each, int) else type(each).__name__ for each in error.args]
    attributes = sorted(name for name in vars(error) if not name.startswith("_"))
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    return "\n".join([f"{kind} {arguments} {attributes}", *_lines_of_user(str(error))])


def _lines_of_user(message: str) -> Iterator[str]:
    is_of_user = True
    for line in message.splitlines():
        if frame := re.match(r'\s*File "([^"]+)"', line):
            is_of_user = "/differential/" in frame[1]
        elif not line.startswith("    "):
            is_of_user = True
        if is_of_user and line.strip(" ~^"):
            yield ADDRESS.sub("0x", line)
