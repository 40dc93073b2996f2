"""Files that every worker writes, each over what the others wrote."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from antifreeze.doctor.facts import Sight
from antifreeze.probes.source.definitions import FoundDefinition
from antifreeze.probes.source.persample import Anatomy
from antifreeze.probes.source.program import Program
from antifreeze.probes.source.sights.fixed import is_fixed
from antifreeze.probes.syntax import ancestors

# Callable → the position of the path.
_WRITERS = {
    "numpy.save": 0,
    "numpy.savez": 0,
    "numpy.savez_compressed": 0,
    "numpy.savetxt": 0,
    "torch.save": 1,
    "cv2.imwrite": 0,
    "imageio.imwrite": 0,
    "torchvision.utils.save_image": 1,
    "soundfile.write": 0,
}
_OWN_WRITERS = ("write_text", "write_bytes")
_QUESTIONS = ("exists", "isfile", "is_file")


def look(program: Program, body: Anatomy) -> Iterator[Sight]:
    for found in body.per_sample:
        for node in ast.walk(found.node):
            path = _path(found, node) if isinstance(node, ast.Call) else None
            if path is None or not isinstance(node, ast.Call) or not is_fixed(program, body, found, path):
                continue
            if not _is_once(found, path) and not _is_in_lock(found, node):
                yield Sight(kind="writes-fixed-path", what=found.file.written(path), place=found.file.place(node))


def _path(found: FoundDefinition, node: ast.Call) -> ast.expr | None:
    """The path that a call writes to."""
    name = found.file.names.called(node) or ""
    if name in ("open", "io.open"):
        return node.args[0] if node.args and _is_for_writing(node, at=1) and not _is_touch(found, node) else None
    if isinstance(node.func, ast.Attribute) and node.func.attr in _OWN_WRITERS:
        return node.func.value
    if isinstance(node.func, ast.Attribute) and node.func.attr == "open" and name.partition(".")[0] == "self":
        return node.func.value if _is_for_writing(node, at=0) else None
    position = _WRITERS.get(name)
    if position is None and isinstance(node.func, ast.Attribute) and node.func.attr == "save":
        position = 0  # of an image
    return node.args[position] if position is not None and position < len(node.args) else None


def _is_for_writing(node: ast.Call, *, at: int) -> bool:
    """Whether it empties the file: what is only appended to is not lost."""
    mode = next((each.value for each in node.keywords if each.arg == "mode"), None)
    if mode is None and len(node.args) > at:
        mode = node.args[at]
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and "w" in mode.value


def _is_touch(found: FoundDefinition, node: ast.Call) -> bool:
    """`open(path, "w").close()`: a mark, with nothing in it to be lost."""
    parent = found.file.parents[node]
    return isinstance(parent, ast.Attribute) and parent.attr == "close"


def _is_once(found: FoundDefinition, path: ast.expr) -> bool:
    """Whether the function asks if the file exists: then it is made once, as a cache is."""
    text = ast.unparse(path)
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _QUESTIONS
        and text in ast.unparse(node)
        for node in ast.walk(found.node)
    )


def _is_in_lock(found: FoundDefinition, node: ast.Call) -> bool:
    return any(
        isinstance(each, ast.With) and any("lock" in ast.unparse(held.context_expr).lower() for held in each.items)
        for each in ancestors(found.file.parents, node)
    )
