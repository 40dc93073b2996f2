"""HTTP connections: the worker gets one to the same server that is not connected yet, and connects when it is used."""

from __future__ import annotations

import socket
from http.client import HTTPConnection
from typing import Any

from antifreeze.engine.crossing.kinds.base import Kind, Luggage, Reduced, fresh

# "As `socket.setdefaulttimeout` says": one object, which no pickle would bring back as itself.
_DEFAULT_TIMEOUT = socket._GLOBAL_DEFAULT_TIMEOUT  # type: ignore[attr-defined]


def plan(handle: Any, luggage: Luggage) -> Reduced:
    """All of it but the socket, and what is under way there."""
    state = vars(handle).copy()
    state.update(sock=None, _buffer=[], _HTTPConnection__response=None, _HTTPConnection__state="Idle")
    if state.get("timeout") is _DEFAULT_TIMEOUT:
        del state["timeout"]
    return make, (type(handle),), state


def make(cls: type[Any]) -> Any:
    """The other side of `plan`, before it gets its state."""
    handle = fresh(cls)
    handle.timeout = _DEFAULT_TIMEOUT
    return handle


KINDS: dict[type, Kind] = {HTTPConnection: Kind(plan)}
