"""Why an object cannot be pickled: the path to the part that is to blame, what it is, and what to do about it.

One walk over all that the pickler would follow, in its order, each object once: it asks the pickler's own reducers, so the
first object whose reduction fails is the one at which the pickler has stumbled. Nothing is pickled again.
"""

from __future__ import annotations

import copyreg
import inspect
import io
import itertools
import pickle
import reprlib
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from antifreeze.engine.arena.pickled import BatchPickler
from antifreeze.engine.crossing.by_value import find_by_name
from antifreeze.engine.crossing.results import ResultPickler
from antifreeze.engine.crossing.state import library_directories
from antifreeze.errors import CannotCross

# A reducer of the user's may take any time; an error message is not worth more than this.
PATIENCE_S = 10.0
# A longer path is shortened to so many steps at either end.
STEPS_SHOWN = 6
# Of what goes to a worker, and of what a worker made.
TO_A_WORKER, FROM_A_WORKER = "AF301", "AF305"

_ATOMS = frozenset(
    (type(None), bool, int, float, complex, str, bytes, bytearray, pickle.PickleBuffer, types.CodeType, type(...))
)
_SEQUENCES = (list, tuple, set, frozenset)
_MAKES = (copyreg.__newobj__, copyreg.__newobj_ex__)  # type: ignore[attr-defined]


def explain(parts: Mapping[str, Any], error: Exception, *, asked: pickle.Pickler) -> CannotCross | None:
    """The error to raise when these parts of a loader could not be sent to a worker; None if it is none of them.

    `asked` is a pickler like the one that failed: its reducers are asked again, and nothing is written.
    """
    found = find_culprit(parts, asked)
    if isinstance(found, Culprit):
        return _cannot_cross(f"{found.path} cannot be sent to a worker", found, _remedy(found.thing), TO_A_WORKER)
    if _is_too_deep(error):
        return _too_deep(f"{found.root} is nested too deeply to be sent to a worker", found, error, TO_A_WORKER)
    return None


def explain_batch(batch: Any, error: Exception, *, worker: int) -> CannotCross:
    """The error to raise when a worker could not send a batch back because of `error`."""
    begin = f"worker {worker} made a batch that cannot be sent"
    found = find_culprit({"batch": batch}, BatchPickler(ResultPickler).new_pickler())
    if isinstance(found, Culprit):
        return _cannot_cross(f"{begin}: {found.path} cannot be pickled", found, PLAIN, FROM_A_WORKER)
    if _is_too_deep(error):
        return _too_deep(f"{begin}: it is nested too deeply", found, error, FROM_A_WORKER)
    where = f"batch is a {type_name(batch)}"
    return CannotCross(
        f"{begin}: batch cannot be pickled", where=where, why=_first_line(error), try_=PLAIN, code=FROM_A_WORKER
    )


def _cannot_cross(what: str, culprit: Culprit, try_: str, code: str) -> CannotCross:
    where = f"{culprit.path} is {describe(culprit.thing)}"
    if culprit.used_by is not None:
        where += f", used by {culprit.used_by.__qualname__}{_at(culprit.used_by)}"
    return CannotCross(
        what, where=where + _raised_at(culprit.error), why=_first_line(culprit.error), try_=try_, code=code
    )


def _too_deep(what: str, deepest: Deepest, error: Exception, code: str) -> CannotCross:
    where = f"{deepest.path} is {deepest.levels:,} levels down"
    try_ = "keep the parts in a list instead of chaining them, or let __reduce__ of the first make a list of them"
    return CannotCross(what, where=where, why=_first_line(error), try_=try_, code=code)


def _is_too_deep(error: BaseException | None) -> bool:
    return isinstance(error, RecursionError) or (error is not None and isinstance(error.__cause__, RecursionError))


# --- the walk


@dataclass(frozen=True, slots=True)
class Culprit:
    """The innermost object that cannot be pickled."""

    path: str
    thing: Any
    error: Exception
    used_by: Any
    """The function or class that travels by value and brings it along, if there is one."""
    way: tuple[tuple[Any, str], ...]
    """The objects on the way to it, the nearest to it first, each with the step that leads on from there."""


@dataclass(frozen=True, slots=True)
class Deepest:
    """No object is to blame: the one that is farthest from its root."""

    root: str
    path: str
    levels: int


class Step(NamedTuple):
    """From an object to one of its parts; made into text only for the path that is told."""

    kind: str
    key: Any

    def text(self, owner: Any, part: Any) -> str:
        """As it is written in Python, as far as it can be."""
        match self.kind:
            case "root":
                return str(self.key)
            case "item":
                return f"[{_short(self.key)}]"
            case "key":
                return f".keys()[{self.key}]"
            case "attribute":
                return f".{self.key}"
            case "variable":
                return f".<{self.key}>"
            case "transparent":
                return ""
            case _:
                name = _attribute_that_is(owner, part)
                return f".{name}" if name else f".__reduce__()[{self.key}]"


class _Frame(NamedTuple):
    step: Step
    thing: Any
    parts: Iterator[tuple[Step, Any]]


def find_culprit(parts: Mapping[str, Any], asked: pickle.Pickler) -> Culprit | Deepest:
    """The first object below these that the pickler cannot take apart, or the one that lies deepest."""
    search = Search(asked, patience_s=PATIENCE_S)
    return next(search.culprits(parts), None) or search.deepest


class Search:
    """One walk, in search of all that the pickler cannot take apart.

    `most_elements` bounds what is looked at of a long container: elements at equal distances, or the first. What
    `is_fine` knows to be no culprit is passed over.
    """

    def __init__(
        self,
        asked: pickle.Pickler,
        *,
        patience_s: float,
        most_elements: int | None = None,
        is_fine: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        self._asked = asked
        self._patience_s = patience_s
        self._most = most_elements
        self._is_fine = is_fine
        self.deepest = Deepest("", "", 0)
        self.is_whole = False
        """Whether the walk came to its end in time."""

    def culprits(self, parts: Mapping[str, Any]) -> Iterator[Culprit]:
        """Each when it is met; what it holds itself is not looked into any further."""
        deadline = time.monotonic() + self._patience_s
        roots = ((Step("root", name), part) for name, part in parts.items())
        trail = [_Frame(Step("transparent", None), None, roots)]
        seen: dict[int, Any] = {}  # with the objects: reducers make some, and an id is good only while its object lives
        while trail and time.monotonic() < deadline:
            try:
                step, part = next(trail[-1].parts, (None, None))
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - of whatever a class of the user's does when it is pickled
                yield Culprit(_path(trail), trail[-1].thing, error, _user_of(trail), _way(trail))
                step, part = None, None
            if step is None:
                self._note_depth(trail)
                trail.pop()
            elif id(part) not in seen:
                seen[id(part)] = part
                if not _is_plain(part, self._most) and not self._is_fine(part):
                    trail.append(_Frame(step, part, _parts(part, self._asked, self._most)))
        self.is_whole = not trail

    def _note_depth(self, trail: list[_Frame]) -> None:
        if len(trail) > self.deepest.levels + 1:
            self.deepest = Deepest(trail[1].step.key, _path(trail), len(trail) - 1)


def _is_plain(thing: Any, most: int | None) -> bool:
    """Whether this is an atom, or holds nothing else: most of a large dataset is of this kind."""
    kind = type(thing)
    if kind is dict:
        return all(_ATOMS.issuperset(map(type, _some(each, most))) for each in (thing, thing.values()))
    return kind in _ATOMS or (kind in _SEQUENCES and _ATOMS.issuperset(map(type, _some(thing, most))))


def _some(elements: Any, most: int | None) -> Any:
    """These; of more than `most`, some at equal distances, or the first where only those can be had."""
    if most is None:
        return elements
    return elements[:: _step(elements, most)] if type(elements) in (list, tuple) else itertools.islice(elements, most)


def _step(elements: Any, most: int | None) -> int:
    """How far the elements that are looked at are from each other."""
    return 1 if most is None or type(elements) not in (list, tuple) else max(1, -(-len(elements) // most))


def _parts(thing: Any, asked: pickle.Pickler, most: int | None) -> Iterator[tuple[Step, Any]]:
    """What pickling goes on with after this object; raises what its reduction raises."""
    if getattr(asked, "persistent_id", _nobody)(thing) is not None:
        return
    kind = type(thing)
    if kind is dict:
        yield from _pairs(_some(thing.items(), most))
    elif kind in _SEQUENCES:
        yield from _items(thing, most)
    else:
        yield from _reduced_parts(thing, _reduce(thing, asked), most)


def _nobody(thing: Any) -> None:
    """The persistent id of a pickler that has none."""


def _reduce(thing: Any, asked: Any) -> tuple[Any, ...]:
    """What the pickler is told about this object; nothing, if it goes by its name and can be found there."""
    kind = type(thing)
    override = getattr(asked, "reducer_override", None)
    reduced = NotImplemented if override is None else override(thing)
    if reduced is NotImplemented:
        reducer = asked.dispatch_table.get(kind)
        if reducer is not None and kind not in (type, types.FunctionType):
            reduced = reducer(thing)
        elif isinstance(thing, type | types.FunctionType):
            reduced = thing.__qualname__
        else:
            reduced = thing.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if isinstance(reduced, str):
        _check_name(thing, reduced)
        return ()
    if not isinstance(reduced, tuple) or not 2 <= len(reduced) <= 6:
        raise pickle.PicklingError(f"{kind.__qualname__}.__reduce__ must return a string or a tuple of 2 to 6 elements")
    return reduced


def _check_name(thing: Any, name: str) -> None:
    module = pickle.whichmodule(thing, name)  # type: ignore[attr-defined]
    if find_by_name(module, name) is not thing:
        raise pickle.PicklingError(f"it is not what {module}.{name} is")


def _reduced_parts(thing: Any, reduced: tuple[Any, ...], most: int | None) -> Iterator[tuple[Step, Any]]:
    """The parts of a reduction, in pickle's order: how it is made, elements, state."""
    if not reduced:
        return
    make, arguments, state, elements, pairs, put = (*reduced, None, None, None, None)[:6]
    if isinstance(thing, types.FunctionType):
        yield from _function_parts(thing, state)
        return
    yield Step("attribute", "__class__") if make is type(thing) else Step("reduction", 0), make
    for place in range(len(arguments or ())):
        yield from _argument_parts(thing, make, arguments, place)
    if elements is not None:
        yield from _items(elements, most)
    if pairs is not None:
        yield from _pairs(_some(pairs, most))
    yield from _state_parts(thing, state, most)
    yield Step("reduction", 5), put


def _function_parts(function: types.FunctionType, state: Any) -> Iterator[tuple[Step, Any]]:
    """What cloudpickle takes along with a function: its attributes, the globals that it names, closure, defaults."""
    attributes, slots = state
    yield from _attributes(attributes)
    cells = dict(zip(function.__code__.co_freevars, slots.pop("__closure__") or (), strict=True))
    for name, cell in (*cells.items(), *slots.pop("__globals__").items()):
        yield Step("variable", name), cell
    yield from _attributes(slots)


def _argument_parts(thing: Any, make: Any, arguments: tuple[Any, ...], place: int) -> Iterator[tuple[Step, Any]]:
    part = arguments[place]
    if part is type(thing):
        yield Step("attribute", "__class__"), part
    elif isinstance(thing, types.CellType):
        yield Step("transparent", None), part
    elif isinstance(thing, tuple) and make in _MAKES:  # the class comes first
        yield from _items(part) if type(part) is tuple else [(Step("item", place - 1), part)]
    elif isinstance(thing, BaseException) and arguments is thing.args:
        yield Step("attribute", f"args[{place}]"), part
    elif isinstance(part, dict) and _are_attributes(thing, part):
        yield from _attributes(part)
    else:
        yield Step("reduction", f"1][{place}"), part


def _state_parts(thing: Any, state: Any, most: int | None) -> Iterator[tuple[Step, Any]]:
    """State is a dict of attributes, a pair of such dicts (the second for slots), or whatever a class has thought up."""
    if isinstance(state, dict):
        yield from _attributes(state)
    elif isinstance(state, tuple) and len(state) == 2 and all(part is None or isinstance(part, dict) for part in state):
        for part in state:
            yield from _attributes(part or {})
    elif isinstance(state, tuple) and _holds_objects(thing):
        yield from _items(state[-1], most)  # numpy's state of an array: version, shape, dtype, order, elements
    elif isinstance(state, tuple | list):
        yield from ((Step("reduction", f"2][{place}"), part) for place, part in enumerate(state))
    else:
        yield Step("reduction", 2), state


def _holds_objects(thing: Any) -> bool:
    return bool(getattr(getattr(thing, "dtype", None), "hasobject", False))


def _items(elements: Iterable[Any], most: int | None = None) -> Iterator[tuple[Step, Any]]:
    places = itertools.count(0, _step(elements, most))
    some = zip(places, _some(elements, most), strict=False)
    return ((Step("item", place), part) for place, part in some if type(part) not in _ATOMS)


def _pairs(pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Step, Any]]:
    for place, (key, value) in enumerate(pairs):
        if type(key) not in _ATOMS:
            yield Step("key", place), key
        if type(value) not in _ATOMS:
            yield Step("item", key), value


def _attributes(attributes: Mapping[str, Any]) -> Iterator[tuple[Step, Any]]:
    return ((Step("attribute", name), part) for name, part in attributes.items() if type(part) not in _ATOMS)


def _are_attributes(thing: Any, found: Mapping[Any, Any]) -> bool:
    own = getattr(thing, "__dict__", {})
    return bool(found) and all(name in own and own[name] is part for name, part in found.items())


# --- the path


def _path(trail: list[_Frame]) -> str:
    owners = [None, *(frame.thing for frame in trail)]
    steps = [frame.step.text(owner, frame.thing) for frame, owner in zip(trail, owners, strict=False)]
    steps = [step for step in steps if step]
    if len(steps) > 2 * STEPS_SHOWN:
        steps = [*steps[:STEPS_SHOWN], " … ", *steps[-STEPS_SHOWN:]]
    return "".join(steps)


def _way(trail: list[_Frame]) -> tuple[tuple[Any, str], ...]:
    steps = itertools.pairwise(trail[1:])
    return tuple((owner.thing, frame.step.text(owner.thing, frame.thing)) for owner, frame in steps)[::-1]


def _user_of(trail: list[_Frame]) -> Any:
    """The innermost function or class that leads to the end of the trail."""
    users = (frame.thing for frame in reversed(trail[:-1]) if isinstance(frame.thing, type | types.FunctionType))
    return next(users, None)


def _attribute_that_is(owner: Any, part: Any) -> str | None:
    """The name under which an object shows this part of it; a getter may do anything, so only members are asked."""
    members = [
        name
        for kind in type(owner).__mro__
        for name, member in vars(kind).items()
        if isinstance(member, types.MemberDescriptorType)
    ]
    shown = {**getattr(owner, "__dict__", {}), **{name: getattr(owner, name, None) for name in members}}
    if isinstance(owner, type):
        shown["__bases__"] = owner.__bases__
    return next((str(name) for name, value in shown.items() if value is part), None)


# --- the words


def describe(thing: Any) -> str:
    """What an object is: its type, and for code its place, for files their name and mode."""
    if isinstance(thing, types.FunctionType | types.MethodType):
        return f"the function {thing.__qualname__}{_at(thing)}"
    if isinstance(thing, type):
        return f"the class {thing.__qualname__}{_at(thing)}"
    text = f"a {type_name(thing)}"
    if isinstance(thing, types.GeneratorType | types.CoroutineType | types.AsyncGeneratorType):
        return f"{text} of {thing.__qualname__}{_at(thing)}"
    if isinstance(thing, io.IOBase):
        return text + _name_and_mode(thing)
    return text


def type_name(thing: Any) -> str:
    """The name of an object's type, with its module unless that is the language itself."""
    kind = type(thing)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _at(code: Any) -> str:
    """` at augment.py:31`, as far as that is known; code of a notebook has no file."""
    try:
        if isinstance(code, type):
            return f" at {_name(inspect.getsourcefile(code))}:{inspect.getsourcelines(code)[1]}"
        holder = getattr(code, "__func__", code)
        names = ("__code__", "gi_code", "cr_code", "ag_code")
        body = next(getattr(holder, name) for name in names if hasattr(holder, name))
    except Exception:  # noqa: BLE001 - inspect's ways to say that there is no source are many
        return ""
    return f" at {_name(body.co_filename)}:{body.co_firstlineno}"


def _name(file: str | None) -> str:
    return Path(file or "?").name


def _name_and_mode(file: Any) -> str:
    name, mode = getattr(file, "name", None), getattr(file, "mode", None)
    if file.closed:
        return f" that is closed: {name!r}"
    return f" of {name!r}, mode {mode!r}" if name is not None and mode is not None else ""


def _raised_at(error: Exception) -> str:
    """Where it was raised, if that is code of the user's."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    if not last or last[0].filename.startswith(library_directories()):
        return ""
    return f"; {last[0].name} raised at {_name(last[0].filename)}:{last[0].lineno}"


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _short(key: Any) -> str:
    try:
        return reprlib.repr(key)
    except Exception:  # noqa: BLE001 - a user's __repr__
        return f"a {type_name(key)}"


# --- what to do

PLAIN = "let the dataset return plain data (tensors, arrays, numbers, strings) in its place"
_IN_THE_WORKER = "make it in the worker (in __getitem__ or worker_init_fn), or use multiprocessing_context='fork'"


def _remedy(thing: Any) -> str:
    if isinstance(thing, types.GeneratorType | types.CoroutineType | types.AsyncGeneratorType):
        return "keep what it is made from, and start it in the worker; or use multiprocessing_context='fork'"
    if isinstance(thing, io.IOBase):
        return "open it in the worker (in __getitem__ or worker_init_fn), each worker under a name of its own"
    return _IN_THE_WORKER
