"""What keeps a loader from being sent to another process: by torch's own means (spawn, forkserver), and by ours.

Runs in a double: the reducers of the user's classes are asked, and nothing is pickled. Of long containers some elements are
looked at; what is missed there is found by a trial.
"""

from __future__ import annotations

import ast
import io
import multiprocessing.context
import pickle
import re
import types
from collections.abc import Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from multiprocessing.synchronize import SemLock
from typing import Any

import torch

from antifreeze.doctor.facts import Obstacle, Place
from antifreeze.engine.backends.hazards.held import loaded
from antifreeze.engine.crossing import pickler
from antifreeze.engine.crossing.by_value import MAIN, find_by_name
from antifreeze.engine.crossing.explain import Culprit, Search, describe
from antifreeze.engine.crossing.main_module import describe_main, is_guard
from antifreeze.probes.objects.origins import assigned_on, assignments, is_interactive, main_file, place_of, tree_of
from antifreeze.probes.syntax import statements
from antifreeze.torch_side.workers import is_cuda_lost_in_fork

MOST_OBSTACLES = 5
MOST_ELEMENTS = 256
# Pickle gives up at some 300 levels, with Python's usual limit on recursion.
MOST_LEVELS = 250
_CODE = (type, types.FunctionType)


def find_obstacles(
    parts: Mapping[str, Any], *, start_method: str | None, patience_s: float
) -> tuple[list[Obstacle], bool]:
    """What stands in the way of spawn, the first first; and whether all was looked at in time."""
    multiprocessing.context.set_spawning_popen(_Spawning())  # type: ignore[arg-type]  # by its behaviour
    search = Search(_SpawnPickler(start_method), patience_s=patience_s, most_elements=MOST_ELEMENTS, is_fine=_is_array)
    found: dict[Place | str, Obstacle] = {}
    for culprit in search.culprits(parts):
        if _is_only_here(culprit.error):
            continue
        obstacle = _obstacle(culprit)
        found.setdefault(obstacle.place or obstacle.path, obstacle)  # the parts of one thing have one line to mend
        if len(found) == MOST_OBSTACLES:
            return list(found.values()), True
    return list(found.values()), search.is_whole


def crosses(parts: Mapping[str, Any], *, patience_s: float) -> bool | None:
    """Whether our engine could send these to a clean process; None: it cannot be told in time, or without trying."""
    with pickler.asked(main_names=describe_main().names) as asked:
        search = Search(asked, patience_s=patience_s, most_elements=MOST_ELEMENTS, is_fine=_is_array)
        culprit = next(search.culprits(parts), None)
    if culprit is not None:
        return None if _is_only_here(culprit.error) else False
    return True if search.is_whole and search.deepest.levels < MOST_LEVELS else None


def _is_array(thing: Any) -> bool:
    """Whether this is an array of numbers: taking a large one apart may copy it."""
    array = loaded("numpy:ndarray")
    return array is not None and isinstance(thing, array) and not thing.dtype.hasobject


def _is_only_here(error: Exception) -> bool:
    """Whether it fails for we ask in a fork, which must not touch a GPU that the program uses."""
    return is_cuda_lost_in_fork() and "CUDA" in str(error)


def _obstacle(culprit: Culprit) -> Obstacle:
    own = place_of(culprit.thing) if isinstance(culprit.thing, _CODE) else None
    names = ((owner, step[1:]) for owner, step in culprit.way if step.startswith("."))
    return Obstacle(
        path=culprit.path,
        what=describe(culprit.thing),
        why=_why(culprit),
        place=own or assigned_on(names),
        is_main_guard=isinstance(culprit.error, NotThere),
    )


def _why(culprit: Culprit) -> str:
    error: Exception = culprit.error
    if isinstance(error, NotThere):
        return f"AttributeError: {error}"  # what the new process says
    if isinstance(culprit.thing, _CODE):
        try:
            pickle.dumps(culprit.thing)  # by its name: that is all that pickle does about code
        except Exception as own:  # noqa: BLE001 - in pickle's own words
            error = own
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", str(error)).partition("\n")[0]
    return f"{type(error).__name__}: {text}"


class NotThere(pickle.PicklingError):
    """It would be pickled by its name, and the other process would not find it."""


class _Spawning:
    """Stands for the process that is being started: locks and connections of multiprocessing let themselves be sent."""

    def duplicate_for_child(self, fd: int) -> int:
        return fd

    def DupFd(self, fd: int) -> int:  # noqa: N802 - multiprocessing's name
        return fd


class _SpawnPickler(ForkingPickler):
    """Asked for the reducers with which multiprocessing starts a process; it never pickles."""

    def __init__(self, start_method: str | None) -> None:
        super().__init__(io.BytesIO())
        self._would_fork = start_method == "fork"
        self._hidden = hidden_names()

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, torch.Tensor):
            if thing.requires_grad and not thing.is_leaf:
                return NotImplemented  # which torch refuses
            return _sent_whole, ()
        if isinstance(thing, torch.UntypedStorage | torch.TypedStorage):
            return _sent_whole, ()  # its reducer would move it into shared memory
        if isinstance(thing, SemLock) and self._would_fork:
            return _sent_whole, ()  # refused only for it was made for a fork
        if isinstance(thing, _CODE) and self._is_hidden(thing):
            raise NotThere(f"Can't get attribute {thing.__qualname__!r} on <module '__mp_main__'>")
        return NotImplemented

    def _is_hidden(self, thing: Any) -> bool:
        if thing.__module__ not in MAIN or find_by_name("__main__", thing.__qualname__) is not thing:
            return False
        return self._hidden is None or thing.__qualname__.partition(".")[0] in self._hidden


def _sent_whole() -> None:
    """Stands for an object that can always be sent, and need not be looked into."""


def hidden_names() -> frozenset[str] | None:
    """Names of the main module that a process which imports it does not have; None: all, for it cannot be imported."""
    file = main_file()
    if not file:
        return None if is_interactive() else frozenset()
    tree = tree_of(file)
    if tree is None:
        return frozenset()
    guards = [statement for statement in tree.body if isinstance(statement, ast.If) and is_guard(statement)]
    hidden = {name for guard in guards for name in _bound(guard.body)}
    others = [statement for statement in tree.body if statement not in guards]
    others += [statement for guard in guards for statement in guard.orelse]
    return frozenset(hidden.difference(_bound(others)))


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """The names of classes and functions, variables and imports that these statements make."""
    for node in statements(body):
        match node:
            case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield name
            case ast.Import(aliases) | ast.ImportFrom(_, aliases):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
            case _:
                yield from (each.target.id for each in assignments([node]) if isinstance(each.target, ast.Name))
