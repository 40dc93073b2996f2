"""`packed`: a read-only sequence for millions of Python objects, which workers read without copying its memory.

A list of objects cannot be shared by forked workers: reading an object counts a reference, which is written beside it,
so that every page that is read is copied in every worker. Here the elements are bytes, one after the other in anonymous
shared memory, and an element is made anew whenever it is read; nothing is ever written there. The memory is held by
tensors in shared memory, which torch and our own crossing send to another process as a descriptor: it is there once,
however workers are started, and not in `/dev/shm`.

Each element begins with a byte that says how it is written (`_Form`). Sequences of ints or floats alone are arrays.
"""

from __future__ import annotations

import array
import ctypes
import io
import os
import pickle
import types
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, Protocol, SupportsIndex, TypeVar, overload

import torch

from antifreeze.engine.arena import segment as memory
from antifreeze.errors import CannotCross
from antifreeze.torch_side.tensors import share_by_descriptor, storage_of_descriptor

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Written to shared memory in pieces of about this size, so that building takes no more than that on top of it.
CHUNK_BYTES = 1 << 20
# Their number is one byte.
MOST_KEY_SETS = 256


class _Form:
    """How an element is written. Keys take two fifths of the pickle of an annotation dict, so they are written once."""

    TEXT = 0  # utf-8
    BYTES = 1
    PLAIN = 2  # a pickle without classes
    RECORD = 3  # a dict: the number of its keys, and a plain pickle of its values
    OBJECT = 4  # a pickle with classes or functions, which are looked up in a table


def packed(elements: Iterable[T]) -> Packed[T]:
    """Write the elements into shared memory, one by one as they come; CannotCross if one cannot be pickled.

    What comes out of the sequence is equal to what went in, and new each time: to change an element that was read
    changes nothing in the sequence.
    """
    rest = iter(elements)
    numbers, other = _leading_numbers(rest)
    if numbers and not other:
        return Packed(_Numbers(numbers.typecode, _in_shared_memory([memoryview(numbers)])))
    return Packed(_Packer().pack(chain(numbers, other, rest)))


class _Store(Protocol[T_co]):
    """Where elements lie, by place from 0."""

    def __len__(self) -> int: ...
    def at(self, place: int) -> T_co: ...
    @property
    def nbytes(self) -> int: ...


class Packed(Sequence[T_co], Generic[T_co]):
    """What `packed` makes: a sequence in shared memory, or a slice of one."""

    __slots__ = ("_at", "_places", "_store")

    def __init__(self, store: _Store[T_co], places: range | None = None) -> None:
        self._store = store
        self._places = range(len(store)) if places is None else places
        self._at = store.at

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory; a slice has those of the whole."""
        return self._store.nbytes

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: SupportsIndex) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Packed[T_co]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T_co | Packed[T_co]:
        if isinstance(index, slice):
            return Packed(self._store, self._places[index])
        try:
            place = self._places[index]
        except IndexError:
            raise IndexError(f"index {index} is out of range: there are {len(self):,} elements") from None
        return self._at(place)

    def __iter__(self) -> Iterator[T_co]:
        return map(self._at, self._places)

    def __reversed__(self) -> Iterator[T_co]:
        return map(self._at, reversed(self._places))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Packed | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(ours == theirs for ours, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Packed[T_co]:
        return self  # nothing in it can be changed

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self._store, self._places)

    def __repr__(self) -> str:
        return f"<packed: {len(self):,} elements in {self.nbytes:,} bytes of shared memory>"


class _Numbers:
    """Ints of 64 bits, or floats."""

    __slots__ = ("_code", "_memory", "_values", "at")

    def __init__(self, code: str, memory: torch.Tensor) -> None:
        self._code = code
        self._memory = memory
        self._values = _view(memory).cast(code)  # type: ignore[call-overload]  # "q" or "d"
        self.at = self._values.__getitem__

    def __len__(self) -> int:
        return len(self._values)

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _Numbers, (self._code, self._memory)


class _Elements:
    """Elements of any kind: their bytes, where each ends, and what they have in common."""

    __slots__ = ("_bytes", "_ends", "_keys", "_memory", "_named")

    def __init__(
        self, memory: torch.Tensor, ends: torch.Tensor, keys: list[tuple[str, ...]], named: dict[tuple[str, str], Any]
    ) -> None:
        self._memory = memory, ends
        self._bytes = _view(memory)
        self._ends = _view(ends).cast("Q")
        self._keys = keys
        self._named = named

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def nbytes(self) -> int:
        return self._bytes.nbytes + self._ends.nbytes

    def at(self, place: int) -> Any:
        start, end = self._ends[place], self._ends[place + 1]
        form, content = self._bytes[start], self._bytes[start + 1 : end]
        if form == _Form.TEXT:
            return str(content, "utf-8", "surrogatepass")
        if form == _Form.RECORD:
            return dict(zip(self._keys[content[0]], pickle.loads(content[1:]), strict=True))
        if form == _Form.PLAIN:
            return pickle.loads(content)
        if form == _Form.BYTES:
            return bytes(content)
        return _Unpickler(content, self._named).load()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Elements, (*self._memory, self._keys, self._named)


def _leading_numbers(elements: Iterator[Any]) -> tuple[array.array[Any], list[Any]]:
    """The ints or floats that the elements begin with, and the first one that is not like them, if any."""
    numbers: array.array[Any] = array.array("q")
    for element in elements:
        kind = type(element)
        if kind is float and not numbers:
            numbers = array.array("d")
        if kind is not (int if numbers.typecode == "q" else float):
            return numbers, [element]
        try:
            numbers.append(element)
        except OverflowError:  # more than 64 bits
            return numbers, [element]
    return numbers, []


class _Packer:
    """Writes elements; what they have in common is collected on the way."""

    def __init__(self) -> None:
        self._ends = array.array("Q", [0])
        self._keys: dict[tuple[str, ...], int] = {}
        self._pickler = _Pickler()

    def pack(self, elements: Iterable[Any]) -> _Elements:
        content = _in_shared_memory(self._chunks(elements))
        ends = _in_shared_memory([memoryview(self._ends)])
        return _Elements(content, ends, list(self._keys), self._pickler.named)

    def _chunks(self, elements: Iterable[Any]) -> Iterator[bytes]:
        chunk = io.BytesIO()
        before = 0
        for position, element in enumerate(elements):
            try:
                chunk.write(self._bytes_of(element))
            except Exception as error:  # of pickle, or of a __reduce__ of the user's
                raise _cannot_be_packed(position, element, error) from error
            self._ends.append(before + chunk.tell())
            if chunk.tell() >= CHUNK_BYTES:
                before += chunk.tell()
                yield chunk.getvalue()
                chunk = io.BytesIO()
        # Nothing cannot be mapped.
        yield chunk.getvalue() if self._ends[-1] else b"\0"

    def _bytes_of(self, element: Any) -> bytes:
        kind = type(element)
        if kind is str:
            return bytes((_Form.TEXT,)) + str(element).encode("utf-8", "surrogatepass")
        if kind is bytes:
            return bytes((_Form.BYTES,)) + bytes(element)
        if kind is dict and set(map(type, element)) == {str}:
            number = self._number_of(tuple(element))
            body, is_plain = self._pickler.dump(tuple(element.values()))
            if number is not None and is_plain:
                return bytes((_Form.RECORD, number)) + body
        body, is_plain = self._pickler.dump(element)
        return bytes((_Form.PLAIN if is_plain else _Form.OBJECT,)) + body

    def _number_of(self, keys: tuple[str, ...]) -> int | None:
        if len(self._keys) < MOST_KEY_SETS:
            return self._keys.setdefault(keys, len(self._keys))
        return self._keys.get(keys)


def _cannot_be_packed(position: int, element: Any, error: Exception) -> CannotCross:
    return CannotCross(
        "an element of a packed sequence cannot be pickled",
        where=f"element {position}, of type {type(element).__module__}.{type(element).__qualname__}",
        why=f"{type(error).__name__}: {error}",
        try_="pack plain data, and make the rest of it when an element is read",
    )


class _Pickler:
    """Pickles elements one by one, and keeps what their pickles name."""

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self._pickler = _NamingPickler(self._stream)

    @property
    def named(self) -> dict[tuple[str, str], Any]:
        """Classes and functions, by module and name."""
        return self._pickler.named

    def dump(self, element: Any) -> tuple[bytes, bool]:
        """The pickle, and whether it is of plain data alone."""
        self._stream.seek(0)
        self._stream.truncate()
        self._pickler.is_plain = True
        self._pickler.clear_memo()
        self._pickler.dump(element)
        return self._stream.getvalue(), self._pickler.is_plain


class _NamingPickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, 5)
        self.named: dict[tuple[str, str], Any] = {}
        self.is_plain = True

    def reducer_override(self, thing: Any) -> Any:
        """Changes nothing; pickle calls it for all that is not plain data, the classes and functions themselves too."""
        self.is_plain = False
        if isinstance(thing, type | types.FunctionType):
            self.named[thing.__module__, thing.__qualname__] = thing
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """Takes classes from a table that came with the sequence: those of a script or notebook may be nowhere else."""

    def __init__(self, content: memoryview, named: dict[tuple[str, str], Any]) -> None:
        super().__init__(io.BytesIO(content))
        self._named = named

    def find_class(self, module: str, name: str) -> Any:
        found = self._named.get((module, name))
        return super().find_class(module, name) if found is None else found


def _in_shared_memory(pieces: Iterable[bytes | memoryview]) -> torch.Tensor:
    """A tensor of these bytes, in anonymous shared memory."""
    fd = memory.copy_of(pieces, "antifreeze-packed")
    try:
        storage = storage_of_descriptor(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)
    os.set_inheritable(
        share_by_descriptor(storage)[0], False
    )  # torch's own copy, which programs started here would get
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)


def _view(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor, which lives as long as they are in use (and without numpy, which torch does not need)."""
    raw = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())
    raw.holds = tensor  # type: ignore[attr-defined]  # an iterator over numbers has nothing but the view
    return memoryview(raw).cast("B")
