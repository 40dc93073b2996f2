"""Acts on a module the moment somebody imports it.

`when_imported("cv2", cap_threads)` acts at once if cv2 is there, else right after its body has run and before the
`import` statement returns: nobody outside the module can see it without the change. Nothing is imported that the program
does not import itself.

How: a finder at the front of `sys.meta_path` lets the finders behind it find the module and wraps the loader that they
chose. The wrapper puts the true loader back before it executes the module, so that the module keeps its `__spec__` and
`__loader__`. An import that fails leaves the action waiting for the next try.

There is no lock, as a fork could leave it locked: an action belongs to the thread that takes it off the list.
This file is loaded at the start of every Python process under `antifreeze run`, so it imports next to nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing `typing` would cost more than all the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Action = Callable[[ModuleType], None]
    OnFault = Callable[[str, Exception], None]


def when_imported(name: str, action: Action, *, on_fault: OnFault | None = None) -> None:
    """Call `action(module)` once the module `name` has been imported; now, if it has been already.

    The action cannot break the import: what it raises is said in one line on stderr, or given to `on_fault`, which may
    raise. Actions for one module run in the order in which they were asked for. Namespace packages have no body that
    could run and are not watched.
    """
    # First onto the list, then the look at sys.modules: the other way round, an import that another thread finishes in
    # between would be missed.
    _waiting.append(_Waiting(name, action, on_fault or say_and_go_on))
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    if sys.modules.get(name) is not None:
        _act(_wait_until_imported(name), name=name)


def say_and_go_on(name: str, fault: Exception) -> None:
    """The usual answer to an action that failed: one line, and the program goes on without it."""
    reason = " ".join(str(fault).split())
    sys.stderr.write(f"antifreeze: could not act on the import of {name}: {type(fault).__name__}: {reason}\n")


class _Waiting:
    """An action and the module it waits for."""

    def __init__(self, name: str, action: Action, on_fault: OnFault) -> None:
        self.name = name
        self._action = action
        self._on_fault = on_fault

    def run(self, module: ModuleType) -> None:
        try:
            self._action(module)
        except Exception as fault:  # whatever it is, it must not become an error of the user's import
            self._on_fault(self.name, fault)


class _Finder:
    """Finds what the finders behind it find, with a wrapped loader if somebody waits for the module.

    It stays in `sys.meta_path` when nobody waits any more. Taking it out while another thread's import walks along the
    list would make that import skip the next finder and fail.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(waiting.name == fullname for waiting in _waiting):
            return None
        spec = self._ask_the_finders_behind(fullname, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, awaited=fullname)  # type: ignore[assignment]  # by its behaviour
        return spec

    def _ask_the_finders_behind(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        # Those in front have said no already, else we would not have been asked. Asking them again could go in circles
        # with another tool of our kind.
        finders = list(sys.meta_path)
        behind = finders[finders.index(self) + 1 :] if self in finders else []
        for finder in behind:
            spec = finder.find_spec(fullname, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                return spec
        return None


class _Loader:
    """The loader of an awaited module, which acts after it has executed the module."""

    def __init__(self, loader: Any, *, awaited: str) -> None:
        self._loader = loader
        self._awaited = awaited

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._step_aside(module)
        self._loader.exec_module(module)
        _act(sys.modules.get(self._awaited, module), name=self._awaited)  # a body may put another object in its place

    def _step_aside(self, module: ModuleType) -> None:
        for owner, attribute in ((module, "__loader__"), (getattr(module, "__spec__", None), "loader")):
            if getattr(owner, attribute, None) is self:
                setattr(owner, attribute, self._loader)

    # Programs look for a module without importing it (`importlib.util.find_spec("torch")`) and then at its loader:
    # they find the attributes and the type of the true one.

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    @property  # type: ignore[misc]  # read-only: nobody sets it
    def __class__(self) -> Any:
        return self._loader.__class__


_finder = _Finder()
_waiting: list[_Waiting] = []


def _act(module: ModuleType, *, name: str) -> None:
    for waiting in [each for each in _waiting if each.name == name]:
        try:
            _waiting.remove(waiting)
        except ValueError:
            continue  # another thread took it
        waiting.run(module)


def _wait_until_imported(name: str) -> ModuleType:
    """Import a module that is there already: waits only if another thread is in the middle of importing it."""
    __import__(name)
    return sys.modules[name]
