"""Calls to other machines that wait forever if these do not answer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from antifreeze.doctor.facts import Sight
from antifreeze.probes.source.definitions import FoundDefinition
from antifreeze.probes.source.persample import Anatomy, local_value
from antifreeze.probes.source.program import Origin, Program, bindings
from antifreeze.probes.syntax import is_self

_VERBS = ("get", "post", "put", "head", "delete", "patch", "options", "request")
_SESSIONS = ("requests.Session()", "requests.session()", "requests.sessions.Session()")
# Callable → the position at which its time-out may be given; None: by keyword only.
_WAITS: dict[str, int | None] = {
    **{f"{owner}.{verb}": None for verb in _VERBS for owner in ("requests", *_SESSIONS)},
    "urllib.request.urlopen": 2,
    "urllib.request.urlretrieve": None,
    "socket.create_connection": 1,
    "http.client.HTTPConnection": 2,
    "http.client.HTTPSConnection": None,
    "ftplib.FTP": 4,
}
# `socket.setdefaulttimeout` bounds these, and not requests, which sets none explicitly.
_BY_DEFAULT = ("urllib.", "socket.", "http.", "ftplib.")


def look(program: Program, body: Anatomy) -> Iterator[Sight]:
    has_default = any(
        file.names.called(node) == "socket.setdefaulttimeout" for file in program.files for node in file.nodes
    )
    for found in (*body.per_sample, *body.functions):
        for node in ast.walk(found.node):
            name = _called(program, body, found, node) if isinstance(node, ast.Call) else None
            if not isinstance(node, ast.Call) or name not in _WAITS or (has_default and name.startswith(_BY_DEFAULT)):
                continue
            if not _has_timeout(found, node, position=_WAITS[name]):
                yield Sight(kind="call-without-timeout", what=name.replace("()", ""), place=found.file.place(node))


def _called(program: Program, body: Anatomy, found: FoundDefinition, node: ast.Call) -> str | None:
    """Its dotted name; a session in a local name or an attribute of self is seen through."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _VERBS:
        return found.file.names.called(node)
    owner = node.func.value
    if isinstance(owner, ast.Attribute) and is_self(owner):
        origins = list(program.of_self(body.owner, owner.attr))
    else:
        origins = [Origin(found.file, local_value(found.node, owner))]
    names = {each.file.names.dotted(each.node) for each in origins if not isinstance(each.node, ast.Constant)}
    return f"{names.pop()}.{node.func.attr}" if len(names) == 1 else None


def _has_timeout(found: FoundDefinition, node: ast.Call, *, position: int | None) -> bool:
    given = next((each.value for each in node.keywords if each.arg == "timeout"), None)
    if given is not None:
        return not (isinstance(given, ast.Constant) and given.value is None)
    if any(each.arg is None for each in node.keywords) or any(isinstance(each, ast.Starred) for each in node.args):
        return True  # this cannot be told
    return (position is not None and len(node.args) > position) or _is_set_later(found, node)


def _is_set_later(found: FoundDefinition, node: ast.Call) -> bool:
    """Whether `settimeout` is called on the name that the result is given."""
    for each in ast.walk(found.node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "settimeout":
            owner = each.func.value
            if isinstance(owner, ast.Name) and any(bound.value is node for bound in bindings(found.node, owner.id)):
                return True
    return False
