"""What is big within a loader's reach: containers of very many Python objects, and arrays in memory of the process's own.

Reading an object writes its reference count, and so copies its page in a forked worker; a spawned worker gets all of it.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterator
from typing import Any

from antifreeze import machine
from antifreeze.doctor.facts import Bulk
from antifreeze.engine.backends.hazards.held import loaded
from antifreeze.engine.crossing.reading import attributes_of, is_subclass, module_of, name_of, some_elements, spread
from antifreeze.probes.objects.reach import Reach

FEWEST_OBJECTS = 100_000
SMALLEST_ARRAY_BYTES = 64 << 20
# Elements that are weighed; each with what it holds, so many levels down.
SAMPLE = 100
LEVELS = 3
# Python has each of these integers once.
_SMALL = range(-5, 257)


def find_bulks(reach: Reach) -> tuple[Bulk, ...]:
    """Each once; the nearest first."""
    found: list[Bulk] = []
    seen: set[int] = set()
    for path, thing in reach:
        for type_, count, size, address in _weigh(thing):
            if address not in seen:
                seen.add(address)
                found.append(Bulk(path=path, type=type_, count=count, bytes=size, place=reach.place(path)))
    return tuple(found)


def _weigh(thing: Any) -> Iterator[tuple[str, int, int, int]]:
    """(Type, number of objects, bytes, address) of what is big."""
    kind = type(thing)
    for container in (list, dict, set, frozenset, tuple):
        if is_subclass(kind, container):
            count = container.__len__(thing)
            if count >= FEWEST_OBJECTS and (size := _bytes_each(thing, container)):
                yield name_of(kind), count, int(size * count) + container.__sizeof__(thing), id(thing)
            return
    array = loaded("numpy:ndarray")
    if array is not None and is_subclass(kind, array):
        yield from _weigh_array(thing, array)
    elif is_subclass(kind, loaded("torch:Tensor")):
        yield from _weigh_tensor(thing)


def _bytes_each(thing: Any, container: Any) -> float:
    """What an element takes on average; 0 if they are all of those that exist once anyway."""
    if container is dict:
        some = some_elements(dict.items(thing))[:SAMPLE]
    elif container in (list, tuple):
        some = [element for _, element in spread(thing, container)][:SAMPLE]
    else:
        some = some_elements(container.__iter__(thing))[:SAMPLE]
    return sum(_size(each, LEVELS) for each in some) / max(1, len(some))


def _size(thing: Any, levels: int) -> int:
    """In bytes, with what it holds; keys of dicts are mostly the same ones, and not counted below the first level."""
    kind: Any = type(thing)
    if thing is None or kind is bool or (kind is int and thing in _SMALL):
        return 0
    if module_of(kind) != "builtins":
        held = attributes_of(thing) if levels else {}
        return object.__sizeof__(thing) + sum(_size(each, levels - 1) for each in held.values())
    own: int = kind.__sizeof__(thing)
    if not levels:
        return own
    if kind in (list, tuple, set, frozenset):
        return own + sum(_size(each, levels - 1) for each in some_elements(thing))
    if kind is dict:
        return own + sum(_size(each, levels - 1) for each in some_elements(thing.values()))
    return own


def _weigh_array(array: Any, kind: Any) -> Iterator[tuple[str, int, int, int]]:
    count = kind.size.__get__(array)
    if kind.dtype.__get__(array).hasobject:
        if count >= FEWEST_OBJECTS:
            some = kind.ravel(array)[:SAMPLE].tolist()
            size = sum(_size(each, LEVELS) for each in some) / len(some)
            yield "numpy.ndarray of objects", count, int((size + 8) * count), id(array)
        return
    size = kind.nbytes.__get__(array)
    address = kind.__array_interface__.__get__(array)["data"][0]
    if size >= SMALLEST_ARRAY_BYTES and not _is_mapped(address):
        yield "numpy.ndarray", 0, size, address


def _weigh_tensor(tensor: Any) -> Iterator[tuple[str, int, int, int]]:
    torch = sys.modules["torch"]
    from antifreeze.torch_side.tensors import as_plain_tensors  # noqa: PLC0415 - torch is there by now

    with as_plain_tensors():
        if (
            torch.Tensor.layout.__get__(tensor) is not torch.strided
            or torch.Tensor.device.__get__(tensor).type != "cpu"
        ):
            return
        storage = torch.Tensor.untyped_storage(tensor)
    if storage.nbytes() >= SMALLEST_ARRAY_BYTES and not storage.is_shared() and not _is_mapped(storage.data_ptr()):
        yield "torch.Tensor", 0, storage.nbytes(), storage.data_ptr()


def _is_mapped(address: int) -> bool:
    """Whether this memory is that of a file, or of shared memory with a name: processes share it without a copy."""
    mapped = machine.mapped_files()
    place = bisect.bisect_right(mapped, address, key=lambda each: each.start) - 1
    return place >= 0 and address < mapped[place].end
