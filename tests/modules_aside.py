"""Takes modules of this repository out of `sys.modules`, and brings back those that the file under test uses.

Workers look at the modules of the user. Where the files of all tests have been collected, that would be the helpers of
all of them, in every worker of every test.
"""

import re
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

_IMPORTS = re.compile(r"^ *(?:from|import) ([\w.]+)", re.MULTILINE)


class ModulesAside(MetaPathFinder, Loader):
    """The modules below a folder. One that is imported while it is aside is found here, and is the same as before."""

    def __init__(self, root: Path, *, but: Sequence[str]) -> None:
        self._root = f"{root}/"
        self._but = tuple(f"{root}/{name}/" for name in but)
        self._aside: dict[str, types.ModuleType] = {}
        self._own_spec: ModuleSpec | None = None

    def put_aside(self) -> None:
        for name, module in list(sys.modules.items()):
            if name != "__main__" and self._is_below(module):
                self._aside[name] = sys.modules.pop(name)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def bring_back(self, name: str) -> None:
        """This module, and what it imports."""
        waiting = [name, "conftest"]
        while waiting:
            name = waiting.pop()
            if name in self._aside and name not in sys.modules:
                sys.modules[name] = self._aside[name]
                waiting += _related(self._aside[name])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in self._aside else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        self._own_spec = self._aside[spec.name].__spec__
        return self._aside[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        """It has been executed; but its spec was taken from it."""
        module.__spec__ = self._own_spec

    def _is_below(self, module: types.ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and file.startswith(self._root) and not file.startswith(self._but)


def _related(module: types.ModuleType) -> Iterator[str]:
    """The names of modules that it imports, of its packages, and of what prepares their tests."""
    package = module.__name__.rpartition(".")[0]
    yield from (package, f"{package}.conftest")
    yield from _IMPORTS.findall(Path(str(module.__file__)).read_text())
    yield from (thing.__name__ for thing in list(vars(module).values()) if isinstance(thing, types.ModuleType))
