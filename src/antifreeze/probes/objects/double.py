"""A double of the target: a forked copy in which code of the user's may run, and which is thrown away.

The program does not notice what that code does (prints, draws random numbers, opens files, waits forever). A double
ends when it has answered, when it is killed, or by its own alarm, should the program itself be gone by then.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from antifreeze import machine
from antifreeze.engine.backends import process

Questions = Mapping[str, Callable[[], Any]]
"""By name; the answers must fit into JSON."""

# Of the alarm, beyond the time that the program waits for an answer.
GRACE_S = 1.0
REAP_S = 1.0
_CHUNK_BYTES = 1 << 16


def ask_double(questions: Questions, *, each_s: float) -> dict[str, Any]:
    """The answers that came within `each_s` seconds each; after a question that ends a double, the next one goes on."""
    answers: dict[str, Any] = {}
    left = dict(questions)
    while left:
        try:
            given = _ask(left, each_s)
        except OSError:  # no process or descriptor is to be had
            break
        answers |= {name: answer for name, (is_known, answer) in given.items() if is_known}
        for name in given:
            del left[name]
        if left:  # the first of them ended the double, or would not end
            del left[next(iter(left))]
    return answers


def _ask(questions: Questions, each_s: float) -> dict[str, tuple[bool, Any]]:
    """From one double: whether the answer to a question is known, and the answer."""
    receiver, sender = os.pipe()
    try:
        pid = process.fork()
        if pid == 0:
            _be_double(questions, sender, each_s)
    except BaseException:
        os.close(receiver)
        raise
    finally:
        os.close(sender)
    try:
        return _read_answers(receiver, each_s)
    finally:
        os.close(receiver)
        _end(pid)


def _read_answers(receiver: int, each_s: float) -> dict[str, tuple[bool, Any]]:
    given: dict[str, tuple[bool, Any]] = {}
    text = b""
    deadline = time.monotonic() + each_s
    while (left := deadline - time.monotonic()) > 0:
        poll = select.poll()
        poll.register(receiver, select.POLLIN)
        if not poll.poll(left * 1000):
            break
        chunk = os.read(receiver, _CHUNK_BYTES)
        if not chunk:
            break
        text += chunk
        *lines, text = text.split(b"\n")
        for line in lines:
            name, is_known, answer = json.loads(line)
            given[name] = is_known, answer
            deadline = time.monotonic() + each_s
    return given


def _end(pid: int) -> None:
    pidfd = process.open_pidfd(pid)
    try:
        process.kill(pidfd)
        process.wait_ended([pidfd], deadline=time.monotonic() + REAP_S)
        process.reap(pid)
    finally:
        os.close(pidfd)


def _be_double(questions: Questions, sender: int, each_s: float) -> NoReturn:
    try:
        _settle(len(questions) * each_s + GRACE_S)
        for name, question in questions.items():
            try:
                line = json.dumps([name, True, question()])
            except Exception:  # noqa: BLE001 - of whatever the user's code does: it is not known, then
                line = json.dumps([name, False, None])
            _write(sender, f"{line}\n".encode())
    finally:
        os._exit(0)


def _settle(alarm_s: float) -> None:
    """Silent, with files of its own, and mortal; all signals but the alarm stay blocked."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, alarm_s)
    gc.disable()  # what is collected here says good-bye to what the program goes on using
    # A file that is read in a copy would be read on at another place in the program.
    machine.give_own_offsets()
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    sys.stdout = sys.stderr = open(nothing, "w", encoding="utf-8", errors="replace")  # noqa: SIM115 - till it ends


def _write(fd: int, text: bytes) -> None:
    while text:
        text = text[os.write(fd, text) :]
