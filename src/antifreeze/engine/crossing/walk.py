"""A walk through what a dataset holds: the nearest first, bounded in time, and no line of the user's code is run.

Attributes, slots, containers, closures, partials, bound methods, and the globals that functions name; how they are read
is `reading.py`'s part, and how to get to them again is `ways.py`'s. Code that is installed is not read; what it has made is
looked into like anything else.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import heapq
import itertools
import logging
import math
import os
import sys
import threading
import time
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cloudpickle.cloudpickle import _extract_code_globals

from antifreeze.engine.crossing.reading import (
    MOST_ELEMENTS,
    Descriptors,
    ancestors,
    attributes,
    attributes_of,
    descriptors,
    is_a,
    is_public,
    kept_apart,
    module_of,
    name_of,
    namespace_of,
    some_elements,
    some_entries,
    spread,
    text,
)
from antifreeze.engine.crossing.state import library_directories
from antifreeze.engine.crossing.ways import Way, global_step

# Nobody notices so long a pause at the start of an epoch. A thousand objects take some milliseconds of it. It is the time
# that this thread itself has used: on a busy machine as much is found as on any other.
PATIENCE_S = 0.05
MOST_OBJECTS = 20_000
# Whoever is that deep is a link of a chain.
MOST_STEPS = 200
# Of a container that is too long: one of these shows what it holds many of.
FEW = 4

Found = tuple[str, Any]

KEEPING_APART: tuple[type, ...] = (threading.local, contextvars.ContextVar, functools._lru_cache_wrapper)


def walk(
    roots: Mapping[str, Any],
    *,
    closed: Iterable[type] = (),
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.thread_time,
) -> Iterator[Found]:
    """(path, object) of all that can be reached from these, such as `dataset.transform.ops[2]`; the nearest first.

    Objects of the `closed` types are not looked into.
    """
    for way, thing in _Walk(_CLOSED | _numbers(*closed), clock).steps(roots, patience_s, MOST_OBJECTS):
        yield str(way), thing


def ways(
    roots: Mapping[str, Any],
    *,
    closed: Iterable[type] = (),
    most_objects: int,
    longest: float,
    shows_private: Callable[[type], bool] | None = None,
    apart: tuple[type, ...] = KEEPING_APART,
    places: Places | None = None,
) -> Iterator[tuple[Way, Any]]:
    """The same with the way to each object; bounded by numbers alone, so that it finds the same in every process.

    Elements of containers come after all else, and the first ones of all containers before the second ones, so that data
    does not hide what is not data. Of containers with more than `longest` elements only a few are looked into; their ways
    are `of_many` then, and so are those to elements of which there were more than could be looked at. (If `longest` is
    infinite, the nearest objects come first.) What a thread, a context or a function keeps apart is found as
    well (`apart`: in objects of these classes): it stays in this process.
    `shows_private`: of the objects of which classes attributes with an underscore are looked at; all, unless told.
    `places`: notes where these were found, and where others may come.
    """
    walk = _Walk(_CLOSED | _numbers(*closed), _no_clock, longest, shows_private, apart=_numbers(*apart), places=places)
    return walk.steps(roots, math.inf, most_objects)


def _no_clock() -> float:
    return 0.0


def _numbers(*kinds: type) -> frozenset[int]:
    return frozenset(map(id, kinds))


# By identity: a class, too, may have strange ideas about what it is equal to.
_PLAIN = _numbers(type(None), bool, int, float, complex, str, bytes, bytearray, range)
# Of a module only what a function names is looked at, from there; loggers travel by name, and each knows all others; who
# holds a weak reference does not hold the object; and the interpreter's own parts hold nothing of the user's.
_CLOSED = _numbers(
    types.ModuleType,
    logging.Logger,
    logging.Handler,
    weakref.ref,
    types.FrameType,
    types.CodeType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
)


class Places:
    """Where a walk found what it found: shows, in less time than another walk takes, whether that would find more."""

    def __init__(self, *closed: type) -> None:
        """Objects of the `closed` types, and plain values, may come and go."""
        self._ignored = _PLAIN | _numbers(*closed)
        self._seen: list[tuple[Callable[[], Iterable[Any]], list[int]]] = []
        self._names: dict[int, set[str]] = {}

    def note(self, read: Callable[[], Iterable[Any]]) -> None:
        """Something is held here."""
        with contextlib.suppress(Exception):  # what cannot be read here is not looked into either
            self._seen.append((read, self._look(read)))

    def note_attributes(self, thing: Any, by: Descriptors) -> None:
        """An object holds things under names; it is not kept by us if it need not be."""
        try:
            holder: Callable[[], Any] = weakref.ref(thing)
        except TypeError:  # of a class whose objects cannot be referred to weakly
            holder = functools.partial(_itself, thing)
        if len(by) == 1 and by[0][0] == "__dict__":  # most are like that, and it takes half the time
            self.note(functools.partial(_namespace_of, holder, by[0][1]))
        else:
            self.note(functools.partial(_attributes_of, holder, by))

    def note_names(self, namespace: Any, names: set[str]) -> None:
        """Code looks for these here."""
        known = self._names.setdefault(id(namespace), set())
        if new := names - known:
            known |= new
            self.note(functools.partial(map, namespace.get, tuple(new)))

    def are_as_they_were(self) -> bool:
        """Whether the same objects are in all of them."""
        try:
            return all(self._look(read) == seen for read, seen in self._seen)
        except Exception:  # another thread changes what is looked at
            return False

    def _look(self, read: Callable[[], Iterable[Any]]) -> list[int]:
        ignored = self._ignored
        return [id(each) for each in list(read()) if id(type(each)) not in ignored]


def _itself(thing: Any) -> Any:
    return thing


def _namespace_of(holder: Callable[[], Any], descriptor: Any) -> Iterable[Any]:
    namespace = descriptor.__get__(holder())
    return dict.values(namespace) if dict.__len__(namespace) <= MOST_ELEMENTS else ()


def _attributes_of(holder: Callable[[], Any], by: Descriptors) -> list[Any]:
    return [value for _, value in attributes(holder(), by)]


def _parts_of(kind: Any, read: Callable[[Any], Iterable[Any]], container: Any, longest: float) -> Iterable[Any]:
    return read(container) if kind.__len__(container) <= longest else ()


def _parts_apart(thing: Any) -> Iterable[Any]:
    return kept_apart(thing).values()


def _contents_of(cells: Iterable[types.CellType]) -> list[Any]:
    return [cell.cell_contents for cell in cells if cell != _EMPTY]


_EMPTY = types.CellType()


class _Form(NamedTuple):
    """How to look at the objects of one class."""

    kind: type
    """Kept, so that its number comes to stand for no other class."""
    look: Callable[[_Walk, Way, Any], None] | None
    descriptors: Descriptors
    hides: bool
    """Whether attributes with an underscore are left out."""


class _Walk:
    def __init__(
        self,
        closed: frozenset[int],
        clock: Callable[[], float],
        longest: float = math.inf,
        shows_private: Callable[[type], bool] | None = None,
        *,
        apart: frozenset[int] = frozenset(),
        places: Places | None = None,
    ) -> None:
        self._places = places
        self._closed = closed
        self._apart = apart
        self._clock = clock
        self._longest = longest
        self._shows_private = shows_private
        self._libraries = library_directories()
        self._pid = os.getpid()
        self._queue: list[tuple[float, int, Way, Any]] = []
        """Sorted: by the turn of an object, then by the number of its entry."""
        self._number = itertools.count()
        self._turn = 0.0
        """Of the object that is looked into: the latest one of those that led to it."""
        self._seen: dict[int, Any] = {}
        """Kept, so that no number comes to stand for another object."""
        self._forms: dict[int, _Form] = {}

    def steps(self, roots: Mapping[str, Any], patience_s: float, most_objects: int) -> Iterator[tuple[Way, Any]]:
        deadline = self._clock() + patience_s
        for name, thing in roots.items():
            self._add(None, "attribute", name, thing)
        for _ in range(most_objects):
            if not self._queue or self._clock() > deadline:
                return
            self._turn, _, way, thing = heapq.heappop(self._queue)
            yield way, thing
            if way.length < MOST_STEPS:
                self._look_into(way, thing)
        for _, _, way, _ in self._queue:
            way.leave_out()

    def _add(
        self, way: Way | None, kind: str, key: Any, thing: Any, words: str | None = None, *, turn: float = 0.0
    ) -> None:
        if id(type(thing)) not in _PLAIN and id(thing) not in self._seen:
            self._seen[id(thing)] = thing
            entry = max(turn, self._turn), next(self._number), Way(way, kind, key, words), thing
            heapq.heappush(self._queue, entry)

    def _in_turn(self, way: Way, length: int, elements: Iterable[Any]) -> Iterator[tuple[float, Any]]:
        """Those elements of a container that are looked into, each with its turn."""
        if self._longest == math.inf:
            return ((0.0, each) for each in elements)
        if length <= self._longest:
            return ((float(turn), each) for turn, each in enumerate(elements, 1))
        way.has_more = True
        return ((float(FEW), each) for each in itertools.islice(elements, FEW))

    def _look_into(self, way: Way, thing: Any) -> None:
        form = self._forms.get(id(type(thing))) or self._get_to_know(way, type(thing))
        if form.look is not None:
            form.look(self, way, thing)
        if self._places is not None and form.descriptors:
            self._places.note_attributes(thing, form.descriptors)
        for name, value in attributes(thing, form.descriptors):
            if id(type(value)) not in _PLAIN and not (form.hides and not is_public(name)):
                self._add(way, "attribute", name, value)

    def _get_to_know(self, way: Way, kind: type) -> _Form:
        """How to look at objects of this class; the first of them is the way to what the class itself holds."""
        kinds = ancestors(kind)
        look = next((_BY_KIND[id(each)] for each in kinds if id(each) in _BY_KIND), None)
        is_closed = any(id(each) in self._closed for each in kinds)
        by = () if is_closed or look in _WHOLE else descriptors(kind)
        hides = self._shows_private is not None and not self._shows_private(kind)
        form = _Form(kind, None if is_closed else look, by, hides)
        self._forms[id(kind)] = form
        if not is_closed:
            self._look_into_classes(way, kind)
        return form

    def _note(self, read: Callable[..., Iterable[Any]], *given: Any) -> None:
        if self._places is not None:
            self._places.note(functools.partial(read, *given))

    def _look_into_mapping(self, way: Way, mapping: dict[Any, Any]) -> None:
        self._note(_parts_of, dict, dict.values, mapping, self._longest)
        entries = enumerate(some_entries(mapping))
        for turn, (number, (key, value)) in self._in_turn(way, dict.__len__(mapping), entries):
            if id(type(value)) in _PLAIN:
                continue
            if type(key) is int and key == self._pid:
                self._add(way, "pid", "own", value, f"[{key}]", turn=turn)
            elif id(type(key)) in _PLAIN:
                self._add(way, "item", key, value, turn=turn)
            else:
                self._add(way, "value", number, value, f"[<{name_of(type(key))}>]", turn=turn)

    def _look_into_list(self, way: Way, elements: list[Any]) -> None:
        self._note(_parts_of, list, list.__iter__, elements, self._longest)
        self._add_places(way, list.__len__(elements), spread(elements, list))

    def _look_into_tuple(self, way: Way, elements: tuple[Any, ...]) -> None:
        self._add_places(way, tuple.__len__(elements), spread(elements, tuple))

    def _look_into_set(self, way: Way, elements: Any) -> None:
        kind: Any = set if is_a(elements, set) else frozenset
        self._note(_parts_of, kind, kind.__iter__, elements, self._longest)
        some = enumerate(some_elements(kind.__iter__(elements)))
        for turn, (number, value) in self._in_turn(way, kind.__len__(elements), some):
            self._add(way, "element", number, value, turn=turn)

    def _look_into_deque(self, way: Way, elements: deque[Any]) -> None:
        self._note(_parts_of, deque, deque.__iter__, elements, self._longest)
        self._add_places(way, deque.__len__(elements), enumerate(some_elements(deque.__iter__(elements))))

    def _add_places(self, way: Way, length: int, elements: Iterable[tuple[int, Any]]) -> None:
        for turn, (place, value) in self._in_turn(way, length, elements):
            if id(type(value)) not in _PLAIN:
                self._add(way, "item", place, value, turn=turn)

    def _look_into_classes(self, way: Way, kind: type) -> None:
        for number, each in enumerate(ancestors(kind)):
            self._look_into_class(way, number, each)

    def _look_into_class(self, way: Way, number: int, kind: type) -> None:
        """What a class of the user's holds itself: methods, which name globals, and attributes that objects share."""
        if self._is_users(sys.modules.get(module_of(kind))):
            self._note(namespace_of(kind).values)
            way = Way(way, "class", number)
            for name, value in list(namespace_of(kind).items()):
                self._add(way, "attribute", name, value)

    def _look_into_builtin(self, way: Way, function: types.BuiltinFunctionType) -> None:
        self._add(way, "attribute", "__self__", function.__self__)

    def _look_apart(self, way: Way, thing: Any) -> None:
        if any(id(each) in self._apart for each in ancestors(type(thing))):
            self._note(_parts_apart, thing)
            for name, value in kept_apart(thing).items():
                self._add(way, "apart", name, value, f".<{name}>")

    def _look_into_function(self, way: Way, function: types.FunctionType) -> None:
        if function.__code__.co_filename.startswith(self._libraries):
            return
        if function.__closure__:
            self._note(_contents_of, function.__closure__)
        self._note(function.__dict__.values)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                self._add(way, "cell", name, cell.cell_contents)
            except ValueError:  # not given a value yet
                continue
        for name, value in attributes_of(function).items():
            if name not in ("__globals__", "__builtins__", "__closure__"):
                self._add(way, "attribute", name, value)
        self._add(way, "attribute", "__defaults__", function.__defaults__)
        self._add(way, "attribute", "__kwdefaults__", function.__kwdefaults__)
        self._look_at_globals(way, function)

    def _look_at_globals(self, way: Way, function: types.FunctionType) -> None:
        names = set(names_in(function.__code__))
        namespace = function.__globals__
        if self._places is not None:
            self._places.note_names(namespace, names)
            self._places.note_names(sys.modules, names - namespace.keys())
        # In the order of the code, which is the same in every process; that of a set is not.
        for name in _extract_code_globals(function.__code__):
            if dict.__contains__(namespace, name):
                kind, path = global_step(function, name)
                self._add_global(way, kind, path, dict.get(namespace, name), names)
        for name in sorted(names - namespace.keys()):  # imported by the function itself
            if name in sys.modules:
                self._add_global(way, "module", name, sys.modules.get(name), names)

    def _add_global(self, way: Way, kind: str, path: str, value: Any, names: set[str]) -> None:
        self._add(way, kind, path, value)
        if self._is_users(value):
            namespace = namespace_of(value)
            if self._places is not None:
                self._places.note_names(namespace, names)
            way = Way(way, kind, path)
            for each in sorted(names & namespace.keys()):
                self._add(way, "attribute", each, namespace[each])

    def _is_users(self, module: Any) -> bool:
        if not is_a(module, types.ModuleType):
            return False
        namespace = namespace_of(module)
        path = text(namespace.get("__file__"))
        if not path:
            return text(namespace.get("__name__")) == "__main__"  # of a notebook, or typed in
        return not path.startswith(self._libraries)


_BY_KIND: dict[int, Callable[[_Walk, Way, Any], None]] = {
    id(dict): _Walk._look_into_mapping,
    id(list): _Walk._look_into_list,
    id(tuple): _Walk._look_into_tuple,
    id(set): _Walk._look_into_set,
    id(frozenset): _Walk._look_into_set,
    id(deque): _Walk._look_into_deque,
    id(type): _Walk._look_into_classes,
    id(types.FunctionType): _Walk._look_into_function,
    id(types.BuiltinFunctionType): _Walk._look_into_builtin,
    **{id(kind): _Walk._look_apart for kind in KEEPING_APART},
}
# Their attributes are read by a way of their own.
_WHOLE = (_Walk._look_into_classes, _Walk._look_into_function)


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names that a function uses and that are not its own, those of the functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from names_in(constant)
