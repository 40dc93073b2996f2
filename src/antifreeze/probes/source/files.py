"""The script and the user's own modules that it imports: found beside it and below, read, parsed, bounded.

What is installed is never read: an import is the user's own if its file lies below the directory of the script, or below
that of the package that the script belongs to.
"""

from __future__ import annotations

import ast
import tokenize
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from antifreeze.doctor.facts import Place
from antifreeze.probes.source.names import Names, imported_modules
from antifreeze.probes.syntax import function_around, parents_of

# A program of the user's has fewer files, and smaller ones; what has more is generated, or not the user's.
MOST_FILES = 200
MOST_BYTES = 2 << 20
MOST_BYTES_IN_ALL = 4 << 20
_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """One file that was read."""

    path: Path
    shown: str
    """Its path, relative to the directory of the script where it is below that."""
    module: str
    """The dotted name that others import it by."""
    text: str
    tree: ast.Module
    names: Names
    parents: Mapping[ast.AST, ast.AST] = field(repr=False)
    lines: tuple[str, ...] = field(repr=False)
    nodes: tuple[ast.AST, ...] = field(repr=False)
    """All of the tree, outer ones first."""

    def place(self, node: ast.stmt | ast.expr | ast.excepthandler, *, text: str | None = None) -> Place:
        around = function_around(self.parents, node)
        name = "" if around is None else getattr(around, "name", "<lambda>")
        line = self.lines[node.lineno - 1].strip() if node.lineno <= len(self.lines) else ""
        return Place(self.shown, node.lineno, name, line if text is None else text)

    def written(self, node: ast.expr) -> str:
        """The source text of an expression, on one line."""
        return " ".join((ast.get_source_segment(self.text, node) or ast.unparse(node)).split())


def read_files(
    script: Path, more: Iterable[Path] = (), *, base: Path | None = None
) -> tuple[list[File], dict[str, str]]:
    """The script first, then what it imports of the user's; and why others could not be read."""
    script = script.absolute()
    named_from = script.parent if base is None else base.absolute()
    roots = tuple(dict.fromkeys([*_roots(script), named_from]))
    waiting, seen = deque([script, *(each.absolute() for each in more)]), set[Path]()
    files: list[File] = []
    unreadable: dict[str, str] = {}
    while waiting and len(files) < MOST_FILES and sum(len(file.text) for file in files) < MOST_BYTES_IN_ALL:
        path = waiting.popleft()
        if path in seen:
            continue
        seen.add(path)
        shown = _shown(path, named_from)
        try:
            file = _read(path, shown=shown, module=_module_name(path, roots))
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            unreadable[shown] = f"{type(error).__name__}: {error}"
            continue
        files.append(file)
        waiting.extend(each for each in _imported_files(file, roots) if each not in seen)
    return files, unreadable


def _read(path: Path, *, shown: str, module: str) -> File:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MB")
    with tokenize.open(path) as file:
        text = file.read()
    tree = ast.parse(text, filename=str(path))
    nodes = tuple(ast.walk(tree))
    names = Names(nodes, module=module, is_package=path.name == "__init__.py")
    # Not `splitlines`: Python's lines end at a newline only, and a form feed is not one.
    return File(path, shown, module, text, tree, names, parents_of(nodes), tuple(text.split("\n")), nodes)


def _roots(script: Path) -> tuple[Path, ...]:
    """Where imports of the user's are looked for: beside the script, and beside the package that it is in."""
    above = script.parent
    while (above / "__init__.py").is_file() and above.parent != above:
        above = above.parent
    return (script.parent,) if above == script.parent else (script.parent, above)


def _shown(path: Path, directory: Path) -> str:
    return str(path.relative_to(directory)) if path.is_relative_to(directory) else str(path)


def _module_name(path: Path, roots: tuple[Path, ...]) -> str:
    root = next((root for root in reversed(roots) if path.is_relative_to(root)), path.parent)
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported_files(file: File, roots: tuple[Path, ...]) -> Iterator[Path]:
    is_package = file.path.name == "__init__.py"
    for dotted in imported_modules(file.nodes, module=file.module, is_package=is_package):
        parts = dotted.split(".")
        for root in roots:
            for length in range(1, len(parts) + 1):
                yield from _files_of(root.joinpath(*parts[:length]))


def _files_of(module: Path) -> Iterator[Path]:
    if _INSTALLED.isdisjoint(module.parts) and module.name:
        yield from (path for path in (module / "__init__.py", module.with_name(f"{module.name}.py")) if path.is_file())
