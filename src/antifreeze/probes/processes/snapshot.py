"""What was seen of a process → its picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from antifreeze import machine
from antifreeze.doctor.facts import Place, ProcessPicture, ThreadPicture
from antifreeze.engine.supervise.stacks import Frame
from antifreeze.machine import Wait
from antifreeze.probes.processes import classify_stack
from antifreeze.probes.processes.family import Member
from antifreeze.probes.processes.looks import ProcessHistory, line_of
from antifreeze.probes.processes.rights import obstruction
from antifreeze.probes.processes.spy import Spied, SpiedThread


def snapshot(history: ProcessHistory, spied: Spied, *, native: tuple[str, ...], keep_values: bool) -> ProcessPicture:
    """The picture of one process."""
    member, facts, calls = history.member, history.facts[-1], history.calls[-1]
    pid, home = member.kin.pid, home_of(member)
    wait = machine.wait_of(pid)
    in_the_way = obstruction(spied.error, machine.rights_over(pid), pid) if spied.error else None
    mine = classify_stack.users_frames(calls)
    return ProcessPicture(
        pid=pid,
        parent=member.kin.parent,
        role=member.role,
        worker=member.worker,
        command=" ".join(member.kin.command),
        state=facts.state,
        exitcode=machine.exit_code_of(pid),
        waits_in=facts.waits_in,
        channel=wait.channel,
        cpu_share=round(history.cpu_share, 3),
        seconds=round(machine.age_s(member.kin), 1),
        still_s=round(history.still_s, 1),
        same_place_s=round(history.same_place_s, 1),
        stage=history.stage,
        place=_place(mine[0], home) if mine else None,
        sample=classify_stack.sample_at(calls),
        batch=classify_stack.batch_at(calls),
        rss_bytes=machine.resident_bytes(pid),
        threads=tuple(_thread(each, pid, home, keep_values=keep_values) for each in spied.threads),
        native=native,
        lock=wait.lock,
        peer=_peer(pid, wait),
        waits_for=wait.holders,
        tracer=facts.tracer_pid,
        rank=member.rank,
        world_size=member.world_size,
        why_no_stack=in_the_way.why if in_the_way else "",
        to_see_stack=in_the_way.command if in_the_way else "",
    )


def home_of(member: Member) -> str:
    """The directory of the script; where the command line names none, the working directory."""
    directory = machine.directory_of(member.kin.pid) or ""
    script = next((word for word in member.kin.command[1:] if word.endswith(".py")), None)
    return os.path.dirname(os.path.join(directory, script)) if script else directory


def who_waits_for_whom(pictures: Sequence[ProcessPicture]) -> tuple[ProcessPicture, ...]:
    """The same pictures, each with the processes that could end its wait."""
    return tuple(replace(picture, waits_for=_awaited(picture, pictures)) for picture in pictures)


def _awaited(picture: ProcessPicture, pictures: Sequence[ProcessPicture]) -> tuple[int, ...]:
    """By what the stacks say, if they say it; else by who has the other end open."""
    if picture.role == "trainer" and picture.stage in ("next", "close"):
        workers = [
            each for each in pictures if each.role in ("worker", "our-worker") and _serves(each, picture, pictures)
        ]
        busy = [each for each in workers if each.stage != "idle"]
        return tuple(each.pid for each in busy or workers)
    if picture.stage == "idle":
        return tuple(each.pid for each in pictures if each.role == "trainer" and _serves(picture, each, pictures))
    if picture.waits_in == "child":
        return tuple(each.pid for each in pictures if each.parent == picture.pid)
    if picture.peer.startswith("pipe:"):
        others = (each.pid for each in pictures if each.pid != picture.pid)
        return tuple(pid for pid in others if machine.holds_open(pid, picture.peer, for_writing=True))
    return picture.waits_for


def _serves(worker: ProcessPicture, trainer: ProcessPicture, pictures: Sequence[ProcessPicture]) -> bool:
    """Whether it is this trainer's, directly or through a stem or a fork server."""
    above = {each.pid: each.parent for each in pictures if each.role in ("stem", "fork-server")}
    return trainer.pid in (worker.parent, above.get(worker.parent))


def _thread(thread: SpiedThread, pid: int, home: str, *, keep_values: bool) -> ThreadPicture:
    calls = [call for call in classify_stack.own_part(thread.calls) if not call.is_native]
    told = next((call.values for call in calls if call.frame.is_user_code), {}) if keep_values else {}
    return ThreadPicture(
        id=thread.id,
        name=thread.name,
        frames=tuple(_place(call.frame, home) for call in calls),
        is_main=thread.id == pid,
        has_gil=thread.has_gil,
        values=dict(told),
    )


def _place(frame: Frame, home: str) -> Place:
    """Files of the user's relative to his script, if they are below; those of libraries as they are."""
    is_below = home and frame.is_user_code and frame.file.startswith(home + "/")
    file = os.path.relpath(frame.file, home) if is_below else frame.file
    return Place(file, frame.line, frame.function, line_of(frame.file, frame.line))


def _peer(pid: int, wait: Wait) -> str:
    """The first that can be named of what it waits for."""
    for name in wait.files:
        if name.startswith("socket:"):
            address = machine.peer_of(pid, name)
            if address:
                return address
        elif not name.startswith("anon_inode:"):
            return name
    return next(iter(wait.files), "")
