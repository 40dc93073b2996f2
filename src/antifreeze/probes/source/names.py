"""What a name in a file stands for: imports and plain aliases seen through, as dotted names like `numpy.random.seed`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

# `from torch.utils.data import *` gives these, as far as we care.
_TORCH = "torch.utils.data"
_STARRED = ("DataLoader", "Dataset", "IterableDataset", "Subset", "ConcatDataset", "random_split", "get_worker_info")
# The same thing under another name.
_SAME = {
    "torch.multiprocessing.": "multiprocessing.",
    "multiprocessing.get_context().": "multiprocessing.",
    "multiprocessing.pool.Pool": "multiprocessing.Pool",
    "torch.utils.data.dataloader.": "torch.utils.data.",
    "torch.utils.data.dataset.": "torch.utils.data.",
    "concurrent.futures.process.": "concurrent.futures.",
    "concurrent.futures.thread.": "concurrent.futures.",
}


class Names:
    """The names of one file."""

    def __init__(self, nodes: Sequence[ast.AST], *, module: str, is_package: bool) -> None:
        self.imports: dict[str, str] = {}
        """Name in this file → the dotted name that it was imported as."""
        for name, dotted in _imported(nodes, module=module, is_package=is_package):
            self.imports[name] = dotted
        self._meant = dict(self.imports)
        for name, value in _assigned_once(nodes):
            alias = self._alias(value)
            if alias is not None:
                self._meant.setdefault(name, alias)

    def _alias(self, value: ast.expr) -> str | None:
        """`Loader = torch.utils.data.DataLoader`; and what `mp.get_context(…)` gives has the names of the module."""
        if self.called(value) == "multiprocessing.get_context":
            return "multiprocessing"
        root = value
        while isinstance(root, ast.Attribute):
            root = root.value
        return self.dotted(value) if isinstance(root, ast.Name) and root.id in self.imports else None

    def dotted(self, node: ast.AST) -> str | None:
        """`np.random.seed` → `numpy.random.seed`, `mp.get_context("fork").Pool` → `multiprocessing.Pool`; None: no name."""
        if isinstance(node, ast.Name):
            return _canonical(self._meant.get(node.id, node.id))
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return None if base is None else _canonical(f"{base}.{node.attr}")
        if isinstance(node, ast.Call):
            base = self.dotted(node.func)
            return None if base is None else f"{base}()"
        return None

    def called(self, node: ast.AST) -> str | None:
        """The dotted name of what is called, if this is a call."""
        return self.dotted(node.func) if isinstance(node, ast.Call) else None


def _canonical(dotted: str) -> str:
    for other, usual in _SAME.items():
        if dotted.startswith(other):
            return usual + dotted.removeprefix(other)
    return dotted


def _imported(nodes: Sequence[ast.AST], *, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                yield (each.asname, each.name) if each.asname else (each.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom):
            origin = absolute(node, module=module, is_package=is_package)
            for each in node.names:
                if each.name == "*":
                    yield from ((name, f"{_TORCH}.{name}") for name in _STARRED if origin == _TORCH)
                else:
                    yield each.asname or each.name, f"{origin}.{each.name}".lstrip(".")


def absolute(node: ast.ImportFrom, *, module: str, is_package: bool) -> str:
    """The module that is imported from, relative ones made absolute."""
    if not node.level:
        return node.module or ""
    above = module.split(".")
    above = above[: max(0, len(above) - node.level + is_package)]
    return ".".join([*above, *([node.module] if node.module else [])])


def imported_modules(nodes: Sequence[ast.AST], *, module: str, is_package: bool) -> Iterator[str]:
    """Dotted names that may be modules, of all imports of the file, also inside functions."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = absolute(node, module=module, is_package=is_package)
            yield from (f"{origin}.{each.name}".lstrip(".") for each in node.names if each.name != "*")
            yield origin


def _assigned_once(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    assigned: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
    yield from ((name, values[0]) for name, values in assigned.items() if len(values) == 1)


def ends_with(dotted: str | None, names: Iterable[str]) -> bool:
    """Whether the last part of a dotted name is one of these."""
    return dotted is not None and dotted.rpartition(".")[2] in names
