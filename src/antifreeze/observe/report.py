"""What people read when something went wrong: facts → text. Pure.

A report says, in this order: what, where (the user's code first, the libraries under it folded), which sample, why as far
as it is known, what we did, what would cure it, which setting changes our behaviour, where to read on. At most ten lines
of at most a hundred characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from antifreeze.observe.statistics import Statistics, count_of

WIDTH = 100
_LABEL = 8
_OURS = __file__.rpartition("/observe/")[0] + "/"
_LIBRARY = re.compile(r"/(?:site|dist)-packages(?=/)|/lib(?:64)?/python3[.\d]*t?(?=/)|^<frozen ")


class Frame(NamedTuple):
    """One line of a Python stack."""

    file: str
    line: int
    function: str
    source: str = ""
    """The line itself, if it could be read."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A worker that makes no progress: all that is known when it is reported."""

    seconds: float
    """For how long."""
    worker: int | None
    """None: it is the trainer itself."""
    pid: int | None = None
    batch: int | None = None
    """Number of the batch, counted from 0 in its epoch; None while the worker starts."""
    epoch: int | None = None
    rank: int | None = None
    """Of this process in a distributed job."""
    sample: str | None = None
    """Index of the sample, as `repr` writes it; None between samples."""
    position: int | None = None
    """Of the sample in its batch, counted from 0."""
    typical_s: float | None = None
    """What a sample of this loader takes; None without any history."""
    frames: Sequence[Frame] = ()
    """Its Python stack, the innermost first."""
    waits_in: str | None = None
    """What it waits for, in a word: `socket`, `lock (futex)`, `sleep`, `stopped (SIGSTOP)`."""
    how_sure: str = "possible"
    """Of that: `certain`, `likely` or `possible`."""
    disease: str | None = None
    """What the doctor calls it: code and name."""
    why: str | None = None
    """The doctor's reason; None: what it waits in is all there is to say."""
    fix: str | None = None
    """The doctor's advice."""
    did: str | None = None
    """What we have done about it."""
    setting: str | None = None
    """Which setting would have us behave otherwise."""
    stack_file: str | None = None
    """Where the full stacks are."""


class _Wait(NamedTuple):
    begins: str
    """The first word of `waits_in`."""
    why: str
    fix: str


# What is not listed is shown as it is, with the general cure alone.
_WAITS = (
    _Wait("socket", "it waits for the other end of a socket", "give the read a timeout: requests.get(url, timeout=10)"),
    _Wait("lock", "it waits for a lock", "make locks, thread pools and clients in the worker, on first use"),
    _Wait("stopped", "somebody stopped it (SIGSTOP, Ctrl-Z)", "kill -CONT {pid}"),
    _Wait(
        "disk", "it waits for a disk or a file server", "see whether the files that {place} reads can be read at all"
    ),
    _Wait("sleep", "it sleeps", "{place} should come back, or fail, within a known time"),
)
_ANY_WAIT = _Wait("", "it waits ({waits_in})", "{place} should come back, or fail, within a known time")


def stall_report(stall: Stall) -> str:
    """The report of a worker that makes no progress, for stderr."""
    lines = [
        _title(stall),
        *_where(stall.frames),
        *_line("sample", _sample(stall)),
        *_line("why", _why(stall)),
        *_line("did", stall.did),
        *_line("fix", _fix(stall)),
        *_line("set", stall.setting),
        *_line("more", _more(stall)),
        "─" * 78,
    ]
    return "\n".join(lines) + "\n"


def death_line(
    *,
    worker: int,
    pid: int | None,
    what: str,
    where: str,
    why: str | None = None,
    did: str = "another worker does its work again",
) -> str:
    """One line for a worker that ended: how, who it was, where it was, the evidence for why, what we did."""
    rest = "; ".join(filter(None, (f"{_who(worker, None if str(pid) in what else pid)}, {where}", why, did)))
    return _clean(f"{what} {rest}" if what.endswith((".", ":")) else f"{what}; {rest}")


def second_stall(*, pid: int | None, where: str, left_s: float, is_left_out: bool) -> str:
    """One line for a second worker that is stuck where the first one is: where, how long it is waited for, what to set."""
    who = f"a second worker (pid {pid})" if _is_known(pid) else "a second worker"
    then, otherwise = "WorkerFrozen is raised", '; on_error="skip" (run --on-error skip) leaves the sample out instead'
    if is_left_out:
        then, otherwise = "the sample is left out", ""
    return _clean(
        f"{who} is stuck at the same place: {where}. Both are waited for another {_span(left_s)}, then {then}. "
        f"sample_timeout= (run --sample-timeout) sets how long{otherwise}"
    )


def end_line(statistics: Statistics, *, folder: str | None = None) -> str:
    """What there is to say at the end of a run; the folder is where its files are, if there are any."""
    parts = [
        count_of(statistics.batches, "batch"),
        *statistics.mishaps(),
        f"{statistics.waiting_share:.0%} of the time waiting for data",
    ]
    return ", ".join(parts) + (f" (files: {folder})" if folder else "")


def is_users(frame: Frame) -> bool:
    """Whether a line is the user's own, and not of Python, of an installed package or of ours."""
    return not frame.file.startswith(_OURS) and not _LIBRARY.search(frame.file)


def _title(stall: Stall) -> str:
    parts = [
        f"antifreeze: {_who(stall.worker, stall.pid)} made no progress for {_span(stall.seconds)}",
        ", ".join(
            f"{name} {number}"
            for name, number in (("epoch", stall.epoch), ("batch", stall.batch))
            if number is not None
        ),
        "" if stall.rank is None else f"rank {stall.rank}",
    ]
    return _head(f"── {' ─ '.join(filter(None, parts))} ──", WIDTH)


def _is_known(pid: int | None) -> bool:
    return pid is not None and pid > 0  # errors say -1, which `kill` takes for every process there is


def _who(worker: int | None, pid: int | None) -> str:
    who = "this process" if worker is None else f"worker {worker}"
    return f"{who} (pid {pid})" if _is_known(pid) else who


def _where(frames: Sequence[Frame]) -> list[str]:
    """The innermost line of the user's, and what it went into; the innermost of all if none is the user's."""
    if not frames:
        return _line("where", "not known: its stack could not be had")
    chosen = _chosen(frames)
    frame = frames[chosen]
    lines = _line("where", f"{_place(frame)} in {frame.function}{_arrow(frame)}")
    if chosen:
        packages = list(dict.fromkeys(_package(inner) for inner in reversed(frames[:chosen])))
        folded = " → ".join([*packages[:4], *(["…"] if len(packages) > 4 else [])])
        lines += _line("", f"into {folded}, now at {_tip(frames[0])}")
    return lines


def _chosen(frames: Sequence[Frame]) -> int:
    return next((number for number, frame in enumerate(frames) if is_users(frame)), 0)


def _place(frame: Frame) -> str:
    return f"{_tail(frame.file, 50)}:{frame.line}"


def _tip(frame: Frame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line} in {frame.function}"


def _arrow(frame: Frame) -> str:
    return f" → {frame.source.strip()}" if frame.source.strip() else ""


def _package(frame: Frame) -> str:
    """The library that a file belongs to."""
    return _LIBRARY.split(frame.file)[-1].strip("<>/").split("/")[0].removesuffix(".py")


def _sample(stall: Stall) -> str | None:
    if stall.sample is None:
        return None
    place = ", ".join(
        f"{name} {number}" for name, number in (("batch", stall.batch), ("item", stall.position)) if number is not None
    )
    typical = "" if stall.typical_s is None else f"; samples here take {_span(stall.typical_s)}"
    return f"{_head(_clean(stall.sample), 40)}{f' ({place})' if place else ''}{typical}"


def _why(stall: Stall) -> str:
    if stall.disease is not None:
        return f"{stall.disease} · {stall.how_sure}: {stall.why}"
    if stall.waits_in is None:
        return "not known so far"
    return f"{_wait_of(stall.waits_in).why.format(waits_in=stall.waits_in)} · {stall.how_sure}"


def _more(stall: Stall) -> str | None:
    explained = stall.disease and f"antifreeze explain {stall.disease.split()[0]}"
    room = WIDTH - _LABEL - 12 - (len(explained) + 3 if explained else 0)
    stacks = stall.stack_file and f"all stacks: {_tail(stall.stack_file, room)}"
    return " · ".join(filter(None, (explained, stacks))) or None


def _fix(stall: Stall) -> str | None:
    """What would cure it; nobody is told to change a line that is not known to be theirs."""
    if stall.fix is not None:
        return stall.fix
    users = next((frame for frame in stall.frames if is_users(frame)), None)
    known = {"pid": stall.pid if _is_known(stall.pid) else None, "place": users and _place(users)}
    fix = "" if stall.waits_in is None else _wait_of(stall.waits_in).fix
    is_whole = all(value is not None for name, value in known.items() if f"{{{name}}}" in fix)
    return fix.format(**known) if is_whole else None


def _wait_of(waits_in: str) -> _Wait:
    return next((wait for wait in _WAITS if waits_in.startswith(wait.begins)), _ANY_WAIT)


def _line(label: str, text: str | None) -> list[str]:
    return [_head(f" {label:<6} {_clean(text)}", WIDTH)] if text else []


def _span(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2g} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _clean(text: str) -> str:
    """On one line, and without anything that would act on a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))


def _head(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _tail(text: str, width: int) -> str:
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"
