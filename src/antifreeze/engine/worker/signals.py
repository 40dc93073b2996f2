"""Signals in stems and workers: what is sent to all processes of a job is the trainer's to judge.

A forked process inherits the trainer's handlers. Schedulers send signals to every process of a job (Slurm's
`--signal=USR1@60`, `scancel`, a time limit), and a handler that saves a checkpoint or exits must run in the trainer alone::

                 stem        worker                                          a worker's own children
    sent to all  nothing     nothing (SIGQUIT: the usual)                    the usual
    to oneself   nothing     as in the trainer: timers of dataset code       as in the worker

What faulthandler and other C code have installed stays as it is.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from antifreeze import machine

# Sent by a process to itself: by timers, children and pipes.
_TO_ONESELF: set[int] = {signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGCHLD, signal.SIGPIPE}
# Of the process's own fault: no handler can go on.
_FAULTS: set[int] = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
}
# Deadly unless somebody handles them, and sent to whole jobs.
_DEADLY: set[int] = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
}
_QUIET: set[int] = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}

_masks = threading.local()
_inherited: dict[int, Any] = {}
"""In a stem, and in workers forked from it: what the trainer does about signals that a process sends to itself."""
_ours: set[int] = set()
"""In a worker: the signals that it does nothing about."""


def quieten_signals() -> None:
    """In a stem: do nothing about any signal that the trainer has a handler for, or that would end this process."""
    signal.set_wakeup_fd(-1)
    for number in _handled() & _TO_ONESELF:
        handler = signal.getsignal(number)
        if handler is not _do_nothing:  # a clean stem is forked from a base that has been through this
            _inherited[number] = handler
    for number in _handled() | _DEADLY | (_TO_ONESELF - {signal.SIGPIPE}):
        _set(number, _do_nothing)
    for number in _QUIET:
        _set(number, signal.SIG_IGN)
    _set(signal.SIGCHLD, signal.SIG_DFL)


def set_worker_signals() -> None:
    """In a worker: do nothing about what is sent to all processes of a job; its own children get the usual back.

    (Workers are in groups of their own; but a scheduler that ends a job does not go by groups.)
    """
    for number in (_TO_ONESELF - {signal.SIGCHLD, signal.SIGPIPE}) & _handled():
        _set(number, _inherited.get(number, signal.SIG_DFL))
    for number in (_handled() - _TO_ONESELF) | _DEADLY:
        if _set(number, _do_nothing):
            signal.siginterrupt(number, False)
            _ours.add(number)
    _ours.discard(signal.SIGQUIT)
    _set(signal.SIGQUIT, signal.SIG_DFL)
    os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals_in, after_in_child=_give_signals_back)


def _handled() -> set[int]:
    """Signals for which a handler in Python is set, as far as one can be."""
    return {number for number in signal.valid_signals() - _FAULTS if callable(signal.getsignal(number))}


def _set(number: int, handler: Any) -> bool:
    """Set a handler; False if C code has installed one, of which Python's own table may know nothing."""
    known = signal.getsignal(number)
    is_of_c_code = known is None or (not callable(known) and machine.catches(os.getpid(), number))
    if not is_of_c_code:
        signal.signal(number, handler)
    return not is_of_c_code


def _do_nothing(*_: Any) -> None:
    # Not SIG_IGN: that would be inherited by every program that a dataset starts.
    pass


def _hold_signals() -> None:
    """What is sent to a child before it has the usual back must wait, and not be taken for the trainer's."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _ours)


def _let_signals_in() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _give_signals_back() -> None:
    for number in _ours:
        if signal.getsignal(number) is _do_nothing:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _let_signals_in()
