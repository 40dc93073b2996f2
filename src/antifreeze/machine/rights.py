"""Whether this process may look into another one, and what stands in the way."""

from __future__ import annotations

import os
from dataclasses import dataclass

from antifreeze.machine.limits import ptrace_scope
from antifreeze.machine.reading import lines

_CAP_SYS_PTRACE = 19
_SIGNS_OF_A_CONTAINER = ("/.dockerenv", "/run/.containerenv")


@dataclass(frozen=True, slots=True)
class Rights:
    """What decides whether we may read the memory of a process."""

    is_same_user: bool
    has_capability: bool
    """CAP_SYS_PTRACE, which lifts all other restrictions but the strictest of Yama."""
    ptrace_scope: int | None
    """Of Yama; None: this kernel has no Yama."""
    is_in_container: bool


def rights_over(pid: int) -> Rights:
    """What we may do with this process, as far as it is a question of rights."""
    return Rights(
        is_same_user=_users(pid) == {os.geteuid()},
        has_capability=_has_capability(),
        ptrace_scope=ptrace_scope(),
        is_in_container=any(os.path.exists(sign) for sign in _SIGNS_OF_A_CONTAINER),
    )


def catches(pid: int, signal_number: int) -> bool:
    """Whether a process has said what to do when this signal comes; to one that has not, it may be deadly."""
    return bool(_mask(str(pid), "SigCgt:") >> (signal_number - 1) & 1)


def _has_capability() -> bool:
    return bool(_mask("self", "CapEff:") >> _CAP_SYS_PTRACE & 1)


def _mask(process: str, name: str) -> int:
    found = (line.split()[1] for line in lines(f"/proc/{process}/status") if line.startswith(name))
    return int(next(found, "0"), 16)


def _users(pid: int) -> set[int]:
    """The real, effective, saved and file-system user of a process: they must all be ours."""
    found = (line.split()[1:] for line in lines(f"/proc/{pid}/status") if line.startswith("Uid:"))
    return {int(user) for user in next(found, [])}
