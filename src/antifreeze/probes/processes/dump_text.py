"""Pictures of processes → text: one line for each, its stack below, and who waits for whom. Pure.

The user's own frames are shown first, those of libraries are folded into one line; of workers that are idle there is
nothing to tell but that they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import PurePath

from antifreeze.doctor.facts import Place, ProcessPicture, ThreadPicture
from antifreeze.probes.places import is_users

_STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "sleeps, cannot be woken",
    "T": "is stopped",
    "t": "is held by a debugger",
    "Z": "has ended",
}
_WAITS = {
    "lock": "waits for a lock",
    "file lock": "waits for a lock on a file",
    "socket": "waits for the network",
    "pipe": "waits for a pipe",
    "terminal": "waits for somebody to type",
    "poll": "polls",
    "sleep": "sleeps for a while",
    "child": "waits for a child to end",
    "disk": "waits for the disk",
}
_QUIET = ("stem", "fork-server", "resource-tracker", "launcher")
_MOST_FRAMES = 4
_MOST_VALUES = 12
_A_WHILE_S = 1.0
_LONG_S = 3.0


def told(pictures: Sequence[ProcessPicture], *, asked: int, is_verbose: bool = False) -> Iterator[str]:
    """The whole picture, line by line."""
    trainer = pictures[0]
    yield f"{trainer.pid}: {trainer.command or 'a process without a command line'}{_whom_you_asked(pictures, asked)}"
    idle = [] if is_verbose else [each for each in pictures if each.stage == "idle"]
    quiet = [] if is_verbose else [each for each in pictures if each.role in _QUIET]
    for picture in pictures:
        if picture not in idle and picture not in quiet:
            yield ""
            yield from _one(picture, is_verbose=is_verbose)
    if idle or quiet:
        yield ""
    if idle:
        yield f"{_names(idle)}: idle, waiting for the trainer"
    if quiet:
        yield f"also there: {_names(quiet)}"
    yield from _who_waits_for_whom([each for each in pictures if each.role not in _QUIET])
    blind = [each for each in pictures if each.why_no_stack and each.state != "Z" and each.role not in _QUIET]
    obstacles = {each.why_no_stack: each.to_see_stack for each in reversed(blind)}  # each once, for the first
    for why, command in obstacles.items():
        yield ""
        yield f"no Python stack: {why}"
        if command:
            yield f"  to see it: {command}"


def _who_waits_for_whom(pictures: Sequence[ProcessPicture]) -> Iterator[str]:
    still = [each for each in pictures if each.still_s >= _A_WHILE_S and each.stage != "idle"]
    running = [each for each in pictures if not each.still_s and each.same_place_s >= _LONG_S and each.place]
    lines = list(_relations(pictures)) if still else []
    lines += [f"{name_of(each)} {each.pid} is at work, and stays in {_function_at(each.place)}" for each in running]
    if lines:
        yield ""
        yield "who waits for whom"
        yield from (f"  {line}" for line in lines)
    elif not still:
        yield ""
        yield "nothing stands still: it was at work while we looked"


def _function_at(place: Place | None) -> str:
    return f"{place.function} ({place})" if place else "?"


def _whom_you_asked(pictures: Sequence[ProcessPicture], asked: int) -> str:
    meant = next((each for each in pictures if each.pid == asked), None)
    return "" if meant is None or meant is pictures[0] else f"   ({asked} is {name_of(meant)} of it)"


def _one(picture: ProcessPicture, *, is_verbose: bool) -> Iterator[str]:
    words = [f"{name_of(picture):<18}", f"{picture.pid:>7}", does(picture)]
    if picture.still_s >= _A_WHILE_S:
        words.append(f"for {_span(picture.still_s)}")
    if picture.sample is not None:
        words.append(f"at sample {picture.sample}")
    usage = f"cpu {100 * picture.cpu_share:.0f} %, {picture.rss_bytes >> 20} MB, started {_span(picture.seconds)} ago"
    yield f"{'  '.join(words)}   [{usage}]"
    if picture.role not in ("trainer", "worker", "our-worker"):
        yield f"    {picture.command}"
    main = next((thread for thread in picture.threads if thread.is_main), None)
    if main:
        yield from _stack(main, is_verbose=is_verbose)
    if picture.native:
        yield f"    native: {' < '.join(picture.native[:_MOST_FRAMES])}"
    if is_verbose:
        for thread in picture.threads:
            if thread is not main:
                yield f"    thread {thread.name or thread.id}"
                yield from (f"  {line}" for line in _stack(thread, is_verbose=True))


def _stack(thread: ThreadPicture, *, is_verbose: bool) -> Iterator[str]:
    if is_verbose:
        yield from map(_frame, thread.frames)
    else:
        yield from _folded(thread.frames)
    for name, value in list(thread.values.items())[:_MOST_VALUES]:
        yield f"      {name} = {value}"


def _folded(frames: Sequence[Place]) -> Iterator[str]:
    """The user's frames, the innermost first, then what they called."""
    called = []
    shown = 0
    for is_own, group in groupby(frames, lambda place: is_users(place.file)):
        places = list(group)
        if not is_own:
            if not shown:
                called = places
            continue
        for place in places:
            if shown < _MOST_FRAMES:
                yield _frame(place)
            shown += 1
    if called:
        libraries = ", ".join(dict.fromkeys(PurePath(place.file).stem for place in called))
        yield f"    … inside: {called[0].function} ({PurePath(called[0].file).name}:{called[0].line}); {libraries}"


def _frame(place: Place) -> str:
    return f"    {place} in {place.function}" + (f"    {place.text}" if place.text else "")


def _relations(pictures: Sequence[ProcessPicture]) -> Iterator[str]:
    by_pid = {picture.pid: picture for picture in pictures}
    for picture in pictures:
        if picture.stage == "idle":
            continue
        awaited = [by_pid[pid] for pid in picture.waits_for if pid in by_pid]
        if awaited:
            busy = (
                ""
                if picture.stage != "next" or any(each.stage != "idle" for each in awaited)
                else ", but they are idle"
            )
            what = "a batch from " if picture.stage == "next" else ""
            yield f"{name_of(picture)} {picture.pid} → {what}{_names(awaited)}{busy}"
        elif picture.peer or picture.lock:
            yield f"{name_of(picture)} {picture.pid} → {picture.lock or picture.peer}"
    shared = [picture for picture in pictures if picture.lock.startswith("shared lock") and picture.stage != "idle"]
    for lock, group in groupby(sorted(shared, key=lambda each: each.lock), lambda each: each.lock):
        waiting = list(group)
        if len(waiting) > 1:
            yield f"{_names(waiting)} all wait for the same one: {lock}"


def does(picture: ProcessPicture) -> str:
    """What a process does, in a few words."""
    if picture.state == "Z" and picture.exitcode is not None:
        return f"has ended with exit code {picture.exitcode}"
    if picture.state in ("R", "T", "t") or picture.tracer:
        return _STATES["t" if picture.tracer else picture.state]
    words = _WAITS.get(picture.waits_in or "", _STATES.get(picture.state, f"is in state {picture.state}"))
    if picture.waits_in in ("socket", "file lock", "disk") and picture.peer and "[" not in picture.peer:
        words += f" ({picture.peer})"
    return words if picture.waits_in or not picture.channel else f"{words} in {picture.channel}"


def name_of(picture: ProcessPicture) -> str:
    """`worker 2`, `trainer`, `rank 1`."""
    if picture.role in ("worker", "our-worker"):
        of_rank = f" of rank {picture.rank}" if picture.rank is not None else ""
        return f"worker {'?' if picture.worker is None else picture.worker}{of_rank}"
    if picture.role == "trainer" and picture.rank is not None:
        return f"rank {picture.rank}"
    return picture.role


def _names(pictures: Iterable[ProcessPicture]) -> str:
    """`workers 0, 1 and 3 (pids 11, 12, 14)`."""
    listed = list(pictures)
    pids = ", ".join(str(each.pid) for each in listed)
    if len(listed) == 1:
        return f"{name_of(listed[0])} (pid {pids})"
    if all(each.role in ("worker", "our-worker") for each in listed):
        numbers = ", ".join("?" if each.worker is None else str(each.worker) for each in listed)
        return f"workers {numbers} (pids {pids})"
    return ", ".join(f"{name_of(each)} (pid {each.pid})" for each in listed)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"
