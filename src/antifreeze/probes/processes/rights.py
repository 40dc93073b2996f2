"""Why a stack cannot be seen, and the command that would let us see it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from antifreeze.machine import Rights

_DENIED = ("permission denied", "not permitted", "eperm", "eacces")
_NOT_PYTHON = ("failed to find python version", "failed to find a python", "doesn't seem to be a python")
_PARENTS_ONLY, _NOBODY = 1, 3


class Obstruction(NamedTuple):
    """What is in the way, and the line to paste."""

    why: str
    command: str


def obstruction(error: str, rights: Rights, pid: int) -> Obstruction:
    """What py-spy's error means here."""
    said = error.lower()
    if "not installed" in said:
        return Obstruction("py-spy is not installed", "pip install py-spy")
    if any(words in said for words in _NOT_PYTHON):
        return Obstruction("it is not a Python program", "")
    if any(words in said for words in _DENIED):
        return Obstruction(_why_denied(rights), _way_in(rights, pid))
    return Obstruction(error, "")


def _why_denied(rights: Rights) -> str:
    scope = rights.ptrace_scope
    if scope == _NOBODY:
        return "the kernel lets nobody look into processes until the machine is restarted (kernel.yama.ptrace_scope=3)"
    if not rights.is_same_user:
        return "it belongs to another user"
    if scope:
        who = "parents" if scope == _PARENTS_ONLY else "root"
        return f"the kernel lets only {who} look into processes (kernel.yama.ptrace_scope={scope})"
    return "we may not look into it" + ("" if rights.has_capability else " (CAP_SYS_PTRACE is missing)")


def _way_in(rights: Rights, pid: int) -> str:
    if rights.ptrace_scope == _NOBODY:
        return ""
    if rights.is_in_container:
        return (
            f"docker exec --privileged -u root CONTAINER antifreeze dump {pid}   "
            "(or: docker run --cap-add SYS_PTRACE …)"
        )
    if rights.is_same_user and rights.ptrace_scope == _PARENTS_ONLY:
        return "sudo sysctl kernel.yama.ptrace_scope=0"
    return f'sudo -E "$(command -v antifreeze)" dump {pid}'
