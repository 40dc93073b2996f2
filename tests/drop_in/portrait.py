"""A portrait of a batch: all that a user can see of it, as a list of facts that can be compared.

Types (the very class, not its name), bits, dtypes, strides, flags, attributes; which objects are one and the same, which
share memory, and where. Two batches are the same if their portraits are equal. A portrait holds no memory of the batch,
so that of torch's batch can be kept while ours is loaded: torch's tensors have a descriptor each.

Left out on purpose, for it differs where the memory comes from, not in what a program computes: addresses, the offset of
a tensor in its storage and the size of that storage (torch carries the whole storage of a view along), `is_shared()`, and
whether an array owns its memory.
"""

import array
import collections
import ctypes
import dataclasses
import enum
import hashlib
import struct
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.nested._internal.nested_tensor import NestedTensor

ATOMS = (type(None), bool, int, str, bytes, Fraction, torch.dtype, torch.device, torch.layout, torch.memory_format)
SPARSE = {
    torch.sparse_coo: ("_indices", "_values", "is_coalesced"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
NESTED = ("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets")


class Fact(NamedTuple):
    """One thing that is seen of a batch."""

    path: str
    aspect: str
    value: Any


Portrait = list[Fact]


class Memory(NamedTuple):
    """The bytes that a part of the batch uses."""

    path: str
    begin: int
    end: int
    storage: int | None
    """The storage under it, for tensors."""


class Part(NamedTuple):
    path: str
    thing: Any


def portrait(batch: Any, *, storages: bool = False) -> Portrait:
    """Everything about a batch; `storages`: also which tensors are on one storage, even if no byte is common to them."""
    facts: Portrait = []
    paths: dict[int, str] = {}
    kept: list[Any] = []  # an id is good only while its object lives
    memories: list[Memory] = []
    waiting = [Part("batch", batch)]
    while waiting:
        path, thing = waiting.pop()
        kept.append(thing)
        facts.append(Fact(path, "type", type(thing)))
        if has_identity(thing):
            if id(thing) in paths:
                facts.append(Fact(path, "is", paths[id(thing)]))
                continue
            paths[id(thing)] = path
        parts = []
        for aspect in aspects(thing, path):
            if isinstance(aspect, Part):
                parts.append(aspect)
            elif isinstance(aspect, Memory):
                facts += relations(aspect, memories, storages=storages)
                memories.append(aspect)
            else:
                facts.append(aspect)
        waiting.extend(reversed(parts))
    return facts


def differences(expected: Portrait, actual: Portrait) -> list[str]:
    """What differs, in words; empty if nothing does."""
    wanted = {(fact.path, fact.aspect): fact.value for fact in expected}
    found = {(fact.path, fact.aspect): fact.value for fact in actual}
    missing = object()
    lines = []
    for place in dict.fromkeys([*wanted, *found]):
        want, have = wanted.get(place, missing), found.get(place, missing)
        if want is missing or have is missing or not is_equal(want, have):
            shown = ("nothing" if value is missing else shorten(value) for value in (have, want))
            lines.append("{}: {}: {} instead of {}".format(*place, *shown))
    if not lines and [fact[:2] for fact in expected] != [fact[:2] for fact in actual]:
        lines.append("the parts come in another order")
    return lines


def assert_same_portrait(expected: Portrait, actual: Portrait) -> None:
    found = differences(expected, actual)
    assert not found, "\n".join(found[:20])


def is_equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:280]}… ({len(text)} characters)"


def relations(memory: Memory, earlier: list[Memory], *, storages: bool) -> Iterator[Fact]:
    """Which part of the batch lies in the same bytes, or on the same storage, and how far away."""
    for other in earlier:
        if other.begin < memory.end and memory.begin < other.end:
            yield Fact(memory.path, "memory", f"{memory.begin - other.begin:+} bytes from {other.path}")
            break
    if storages and memory.storage is not None:
        for other in earlier:
            if other.storage == memory.storage:
                yield Fact(
                    memory.path, "storage", f"that of {other.path}, {memory.begin - other.begin:+} bytes from it"
                )
                break


def has_identity(thing: Any) -> bool:
    """Whether it can be told if this object is the same as another: of equal atoms a program may find one or two."""
    if isinstance(thing, tuple | frozenset) and not thing:
        return False
    return not isinstance(thing, (*ATOMS, float, complex, np.generic, enum.Enum, type, types.FunctionType))


def aspects(thing: Any, path: str) -> Iterator[Fact | Part | Memory]:
    """What is to be seen of one object, its parts among it."""
    match thing:
        case enum.Enum() | type() | types.ModuleType() | np.ma.core.MaskedConstant():
            yield Fact(path, "identity", id(thing))
        case types.MethodType() | types.BuiltinMethodType():
            yield Fact(path, "name", thing.__qualname__)
            yield Part(f"{path}.__self__", thing.__self__)
        case _ if isinstance(thing, ATOMS):
            yield Fact(path, "value", digest(thing) if isinstance(thing, str | bytes) else thing)
        case types.FunctionType():
            yield from aspects_of_function(thing, path)
        case float() | complex():
            number = complex(thing)
            yield Fact(path, "bits", struct.pack("dd", number.real, number.imag))
        case torch.Tensor():
            yield from aspects_of_tensor(thing, path)
        case np.ndarray():
            yield from aspects_of_array(thing, path)
        case np.generic():
            yield Fact(path, "dtype", thing.dtype)
            if thing.dtype.char in "gG":
                yield Fact(path, "repr", repr(thing))  # there are bytes in it that mean nothing
            else:
                yield from bits_or_objects(np.asarray(thing), path)
        case torch.UntypedStorage() | torch.TypedStorage():
            yield from aspects_of_storage(thing, path)
        case torch.Generator():
            yield Fact(path, "device", thing.device)
            yield Part(f"{path}.get_state()", thing.get_state())
        case Image.Image():
            yield Fact(path, "form", (thing.mode, thing.size, thing.format))
            yield Fact(path, "bits", digest(thing.tobytes()))
            yield Part(f"{path}.info", thing.info)
            yield Part(f"{path}.getpalette()", thing.getpalette())
        case bytearray() | memoryview() | array.array():
            yield Fact(path, "bytes", digest(bytes(thing)))
            yield Fact(path, "format", getattr(thing, "typecode", getattr(thing, "format", "")))
        case _:
            yield from aspects_of_container(thing, path)
            yield from attributes(thing, path)


def aspects_of_container(thing: Any, path: str) -> Iterator[Fact | Part]:
    match thing:
        case Mapping():
            yield Fact(path, "length", len(thing))
            for number, (key, value) in enumerate(thing.items()):
                yield Part(f"{path} key {number}", key)
                yield Part(f"{path}[{key!r:.80}]", value)
            if isinstance(thing, collections.defaultdict):
                yield Part(f"{path}.default_factory", thing.default_factory)
        case set() | frozenset():
            yield Fact(path, "length", len(thing))
            for number, element in enumerate(
                sorted(thing, key=lambda element: (type(element).__name__, repr(element)))
            ):
                yield Part(f"{path} element {number}", element)
        case list() | tuple() | collections.deque() | collections.UserList():
            yield Fact(path, "length", len(thing))
            for number, element in enumerate(thing):
                yield Part(f"{path}[{number}]", element)
            if isinstance(thing, collections.deque):
                yield Fact(path, "maxlen", thing.maxlen)
        case BaseException():
            yield Part(f"{path}.args", thing.args)
        case types.SimpleNamespace():
            yield Part(f"{path}.__dict__", vars(thing))
        case _ if type(thing).__eq__ is not object.__eq__ and not dataclasses.is_dataclass(thing):
            yield Fact(path, "value", thing)  # dates, decimals, paths, patterns, ranges …
            yield Fact(path, "repr", repr(thing))


def attributes(thing: Any, path: str) -> Iterator[Part]:
    """What an object keeps in its `__dict__` and in its slots."""
    if type(thing).__module__ in ("builtins", "collections", "datetime", "decimal", "pathlib", "re", "uuid"):
        return
    for name in sorted(getattr(thing, "__dict__", {})):
        yield Part(f"{path}.{name}", vars(thing)[name])
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield Part(f"{path}.{name}", getattr(thing, name))


def aspects_of_function(function: types.FunctionType, path: str) -> Iterator[Fact | Part]:
    """A function of a module is that very function; any other is known by what it does."""
    yield Fact(path, "name", (function.__module__, function.__qualname__))
    yield Fact(path, "code", function.__code__.co_code)
    yield Part(f"{path}.__defaults__", function.__defaults__)
    if function.__closure__:
        yield Part(f"{path}.__closure__", [cell.cell_contents for cell in function.__closure__])


def aspects_of_tensor(tensor: torch.Tensor, path: str) -> Iterator[Fact | Part | Memory]:
    yield from form_of_tensor(tensor, path)
    for name, value in sorted(vars(tensor).items()):
        if not isinstance(tensor, NestedTensor):
            yield Part(f"{path}.{name}", value)
    if tensor.layout in SPARSE:
        detached = tensor.detach()
        for name in SPARSE[tensor.layout]:
            yield Part(f"{path}.{name}()", getattr(detached, name)())
    elif isinstance(tensor, NestedTensor):
        yield Fact(path, "ragged", (tensor._ragged_idx, tensor.dim()))
        yield Part(f"{path}.values()", tensor.values().detach())
        yield Part(f"{path}.offsets()", tensor.offsets())
        yield Part(f"{path}.lengths()", tensor.lengths())
    elif tensor.is_nested:
        for name in NESTED:
            yield Part(f"{path}.{name}()", getattr(tensor, name)())
        yield Part(f"{path}.values()", tensor.detach().values())
    elif tensor.is_mkldnn:
        yield Part(f"{path}.to_dense()", tensor.to_dense())
    elif hasattr(tensor, "__tensor_flatten__"):
        pass  # a wrapper has no memory of its own; what it wraps is among its attributes
    elif tensor.device.type == "cpu":
        yield from bits_of_tensor(tensor, path)


def form_of_tensor(tensor: torch.Tensor, path: str) -> Iterator[Fact]:
    yield Fact(path, "dtype", tensor.dtype)
    yield Fact(path, "layout", tensor.layout)
    yield Fact(path, "device", tensor.device)
    yield Fact(path, "requires grad", tensor.requires_grad)
    yield Fact(path, "leaf", tensor.is_leaf)
    yield Fact(path, "has a gradient", tensor.is_leaf and tensor.grad is not None)
    yield Fact(path, "inference", tensor.is_inference())
    if tensor.is_quantized:
        yield Fact(path, "scheme", tensor.qscheme())
        yield Fact(path, "scale", str(quantization(tensor)))
    if tensor.is_nested:
        return
    yield Fact(path, "shape", tuple(tensor.shape))
    if tensor.layout is torch.strided:
        yield Fact(path, "view", tensor._is_view())
        yield Fact(path, "stride", tensor.stride())
        yield Fact(path, "bits of a view", (tensor.is_conj(), tensor.is_neg()))
        yield Fact(
            path, "contiguous", tuple(tensor.is_contiguous(memory_format=each) for each in memory_formats(tensor))
        )


def memory_formats(tensor: torch.Tensor) -> Iterable[torch.memory_format]:
    last = {4: [torch.channels_last], 5: [torch.channels_last_3d]}
    return [torch.contiguous_format, *last.get(tensor.dim(), [])]


def quantization(tensor: torch.Tensor) -> Any:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return tensor.q_scale(), tensor.q_zero_point()
    return (
        tensor.q_per_channel_scales().tolist(),
        tensor.q_per_channel_zero_points().tolist(),
        tensor.q_per_channel_axis(),
    )


def bits_of_tensor(tensor: torch.Tensor, path: str) -> Iterator[Fact | Memory]:
    """The bytes of every element, read from memory: there are dtypes that torch can hardly do anything with."""
    storage = tensor.untyped_storage()
    size = tensor.dtype.itemsize
    if not tensor.numel():
        yield Fact(path, "bits", "")
        return
    strides = [step * size for step in tensor.stride()]
    span = sum((n - 1) * step for n, step in zip(tensor.shape, strides, strict=True)) + size
    begin = storage.data_ptr() + tensor.storage_offset() * size
    assert begin + span <= storage.data_ptr() + storage.nbytes(), f"{path} reaches beyond its storage"
    yield Fact(path, "aligned", begin % min(size, 8) == 0)
    raw = (ctypes.c_ubyte * span).from_address(begin)
    every = np.lib.stride_tricks.as_strided(np.frombuffer(raw, np.uint8), (*tensor.shape, size), (*strides, 1))
    yield Fact(path, "bits", digest(every.tobytes()))
    yield Memory(path, begin, begin + span, storage._cdata)


def aspects_of_array(array: np.ndarray, path: str) -> Iterator[Fact | Part | Memory]:
    yield Fact(path, "dtype", array.dtype)
    yield Fact(path, "byte order", array.dtype.str)
    yield Fact(path, "aligned fields", array.dtype.isalignedstruct)
    yield Fact(path, "shape", array.shape)
    yield Fact(path, "stride", array.strides)
    flags = array.flags
    yield Fact(path, "flags (CFWA)", (flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned))
    if isinstance(array, np.ma.MaskedArray):
        yield Part(f"{path}.mask", np.array(array.mask))
        yield Part(f"{path}.fill_value", array.fill_value)
        yield Fact(path, "hard mask", array.hardmask)
        array = array.data
    elif type(array) is not np.ndarray:
        for name, value in sorted(vars(array).items()):
            if name != "_mmap":
                yield Part(f"{path}.{name}", value)
    yield from bits_or_objects(array, path)
    if array.nbytes:
        low, high = np.lib.array_utils.byte_bounds(array)
        yield Memory(path, low, high, None)


def bits_or_objects(array: np.ndarray, path: str) -> Iterator[Fact | Part]:
    if array.dtype.hasobject:
        yield Part(f"{path}.tolist()", array.tolist())
    elif array.dtype.kind == "T":
        yield Fact(path, "strings", digest(repr(array.tolist())))
    else:
        yield Fact(path, "bits", digest(array.tobytes()))


def aspects_of_storage(storage: Any, path: str) -> Iterator[Fact | Memory]:
    untyped = storage if isinstance(storage, torch.UntypedStorage) else storage._untyped_storage
    yield Fact(path, "dtype", getattr(storage, "dtype", None))
    yield Fact(path, "bytes", digest(ctypes.string_at(untyped.data_ptr(), untyped.nbytes()) if len(untyped) else b""))
    if untyped.nbytes():
        yield Memory(path, untyped.data_ptr(), untyped.data_ptr() + untyped.nbytes(), untyped._cdata)


def digest(content: str | bytes) -> str | bytes:
    """Short contents as they are, so that a difference can be read; long ones as their hash."""
    if len(content) <= 64:
        return content
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return f"{len(content)} x {type(content).__name__}, sha256 {hashlib.sha256(raw).hexdigest()[:24]}"


@dataclasses.dataclass(frozen=True, slots=True)
class Raised:
    """In place of a batch that did not come: what was raised."""

    kind: type[BaseException]
    lines: tuple[str, ...]

    def is_like(self, expected: "Raised") -> bool:
        """Whether it is of the same type and says the same, and perhaps more."""
        said = any(line.endswith(expected.lines[-1]) for line in self.lines)
        return said and self.kind is expected.kind

    def __repr__(self) -> str:
        return f"{self.kind.__name__} ({' / '.join(self.lines[:1] + self.lines[-3:])})"


def portrait_of_next(batches: Iterator[Any], *, storages: bool = False, briefly: bool = False) -> Portrait | Raised:
    """The portrait of the next batch, which is let go of, or what was raised in its place; StopIteration passes.

    `briefly`: nobody will look at this one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of half of its layouts
        try:
            batch = next(batches)
        except (StopIteration, TimeoutError):  # the end, and the deadline of the test
            raise
        except Exception as error:
            return Raised(type(error), tuple(str(error).strip().splitlines() or [""]))
        return [] if briefly else portrait(batch, storages=storages)
