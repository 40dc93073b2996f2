"""Why a worker ended: what is known, how sure that is, and what to try. Pure.

A cause is named only on evidence; where there is none, it says how the worker ended and no more.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal, NamedTuple

from antifreeze.engine.supervise.stacks import Stack, most_telling, native_package

Sure = Literal["certain", "likely", "possible"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a worker ended."""

    what: str
    """To follow "the worker", as in "the worker crashed in native code"."""
    evidence: tuple[str, ...]
    advice: str | None
    is_oom: bool
    """Whether the machine ran out of memory."""
    sure: Sure


class _Known(NamedTuple):
    what: str
    advice: str
    sure: Sure = "certain"


_LESS_MEMORY = "fewer workers, a smaller batch_size or prefetch_factor, or a higher memory limit"
_ALONE = "load that sample on its own, in a process without workers"
_CRASHES = {
    "SIGSEGV": _Known("crashed in native code: it touched memory that is not its own (SIGSEGV)", _ALONE),
    "SIGBUS": _Known(
        "touched mapped memory that has nothing behind it any more (SIGBUS)",
        "see whether a memory-mapped file was shortened or replaced meanwhile, and whether the disk or /dev/shm is full",
    ),
    "SIGABRT": _Known(
        "was ended by its own native code, which had found itself in an impossible state (SIGABRT)",
        "read what that code wrote to stderr just before; " + _ALONE,
    ),
    "SIGFPE": _Known("crashed in native code: it divided by zero (SIGFPE)", _ALONE),
    "SIGILL": _Known(
        "came to an instruction that this processor does not know (SIGILL)",
        "install builds of its packages that are made for this processor",
    ),
    "SIGTRAP": _Known("was ended by its own native code, at a trap set there (SIGTRAP)", _ALONE),
    "SIGSYS": _Known(
        "made a system call that a sandbox forbids (SIGSYS)", "allow that call in the seccomp profile of the container"
    ),
}
_SENT = {
    "SIGINT": _Known("was interrupted (SIGINT, as Ctrl-C sends it)", "leave SIGINT alone in worker_init_fn", "likely"),
    "SIGTERM": _Known("was asked to end by somebody (SIGTERM)", "find out who: a scheduler, a time limit, a person"),
    "SIGHUP": _Known("was told that its terminal is gone (SIGHUP)", "start the program under tmux or nohup"),
    "SIGQUIT": _Known("was asked to quit from the keyboard (SIGQUIT)", "find out who sent it"),
    "SIGXCPU": _Known("used up the processor time that it may have (SIGXCPU)", "raise the limit (ulimit -t)"),
    "SIGXFSZ": _Known("wrote a file larger than it may (SIGXFSZ)", "raise the limit (ulimit -f)"),
    "SIGPIPE": _Known(
        "wrote into a pipe that nobody reads any more (SIGPIPE)", "leave SIGPIPE ignored, as Python does"
    ),
}


def cause_of(
    exitcode: int | None,
    *,
    oom_kills_before: int | None = None,
    oom_kills_after: int | None = None,
    stack: Stack | None = None,
    memory: str = "",
) -> Cause:
    """Why a worker ended with this exit code (-n: by signal n; None: nobody could read it).

    The counts are those of `machine.oom_kills()`, `memory` is `machine.memory_facts()`, and the stack is what the worker
    wrote when it crashed.
    """
    if exitcode is None:
        return Cause("ended, and nobody could read how", (), None, is_oom=False, sure="possible")
    if exitcode >= 0:
        return _left(exitcode)
    name = _name_of(-exitcode)
    if name == "SIGKILL":
        return _killed(oom_kills_before, oom_kills_after, memory)
    if name in _CRASHES:
        return _crashed(_CRASHES[name], stack)
    known = _SENT.get(name, _Known(f"was ended by {name}", "find out who sent that signal"))
    return Cause(known.what, (), known.advice, is_oom=False, sure=known.sure)


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"


def _killed(before: int | None, after: int | None, memory: str) -> Cause:
    facts = (memory,) if memory else ()
    if before is None or after is None:
        what = "was killed from outside (SIGKILL), which is most often for lack of memory"
        evidence = ("nobody counts OOM kills here", *facts)
        return Cause(
            what, evidence, f"look into the kernel's log (dmesg); if it was: {_LESS_MEMORY}", False, "possible"
        )
    if after > before:
        what = "was killed by the kernel for lack of memory (SIGKILL from the OOM killer)"
        evidence = (f"the count of OOM kills went from {before} to {after}", *facts)
        return Cause(what, evidence, _LESS_MEMORY, is_oom=True, sure="certain")
    what = "was killed from outside (SIGKILL), and not by the kernel's OOM killer"
    evidence = (f"the count of OOM kills is still {after}", *facts)
    advice = "find out who: a scheduler, a memory guard such as earlyoom or systemd-oomd, a person"
    return Cause(what, evidence, advice, is_oom=False, sure="likely")


def _crashed(known: _Known, stack: Stack | None) -> Cause:
    if stack is None or stack.fatal is None or not stack.frames:
        return Cause(known.what, (), known.advice, is_oom=False, sure=known.sure)
    telling, package = most_telling(stack), native_package(stack)
    evidence = [f"Python was at {stack.frames[0]}"]
    if telling is not None and telling != stack.frames[0]:
        evidence.append(f"called from {telling}")
    if package is None:
        return Cause(known.what, tuple(evidence), known.advice, is_oom=False, sure=known.sure)
    evidence.append(f"native code of {package} had been entered")
    return Cause(known.what, tuple(evidence), f"{known.advice}; another version of {package}", False, known.sure)


def _left(exitcode: int) -> Cause:
    evidence = "no signal ended it: something in it called os._exit, sys.exit or C's exit"
    if exitcode == 1:  # which is also how Python ends when it can do no better
        evidence += ", or an error was caught by nobody and its traceback is on stderr"
    return Cause(
        f"left by itself with exit code {exitcode}",
        (evidence,),
        "raise an exception instead, in the dataset and in what it calls",
        is_oom=False,
        sure="likely" if exitcode == 1 else "certain",
    )
