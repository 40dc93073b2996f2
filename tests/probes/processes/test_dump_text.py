"""What a picture reads like."""

from dataclasses import replace

from antifreeze.doctor.facts import Place, ProcessPicture, ThreadPicture
from antifreeze.probes.processes.dump_text import told

USERS = Place("data.py", 57, "__getitem__", "return self.pool.map(read, parts)")
LIBRARYS = Place("/usr/lib/python3.11/threading.py", 327, "wait", "waiter.acquire()")
TRAINER = ProcessPicture(
    pid=10,
    parent=1,
    role="trainer",
    command="python train.py",
    state="S",
    stage="next",
    waits_in="poll",
    still_s=6.0,
    waits_for=(12,),
)
IDLE = ProcessPicture(pid=11, parent=10, role="worker", worker=0, state="S", stage="idle", still_s=5.0, waits_for=(10,))
STUCK = ProcessPicture(
    pid=12,
    parent=10,
    role="worker",
    worker=1,
    state="S",
    stage="fetch",
    waits_in="lock",
    sample="7",
    still_s=300.0,
    lock="lock 0x7f of 12",
    threads=(ThreadPicture(id=12, is_main=True, frames=(LIBRARYS, USERS)),),
)


def test_the_users_frames_come_first_and_those_of_libraries_are_folded() -> None:
    lines = list(told([TRAINER, IDLE, STUCK], asked=10))
    at = next(number for number, line in enumerate(lines) if line.startswith("worker 1"))
    assert "waits for a lock  for 5 min  at sample 7" in lines[at]
    assert lines[at + 1] == "    data.py:57 in __getitem__    return self.pool.map(read, parts)"
    assert lines[at + 2] == "    … inside: wait (threading.py:327); threading"


def test_all_frames_are_shown_as_they_are_on_request() -> None:
    text = "\n".join(told([TRAINER, IDLE, STUCK], asked=10, is_verbose=True))
    assert text.index("/usr/lib/python3.11/threading.py:327") < text.index("data.py:57")


def test_who_waits_for_whom_is_told_once_for_all_who_are_idle() -> None:
    lines = list(told([TRAINER, IDLE, replace(IDLE, pid=13, worker=2), STUCK], asked=10))
    assert "workers 0, 2 (pids 11, 13): idle, waiting for the trainer" in lines
    assert "  trainer 10 → a batch from worker 1 (pid 12)" in lines
    assert "  worker 1 12 → lock 0x7f of 12" in lines


def test_whoever_asked_about_a_worker_is_told_so() -> None:
    assert next(told([TRAINER, IDLE, STUCK], asked=12)) == "10: python train.py   (12 is worker 1 of it)"


def test_two_who_wait_for_the_same_lock_are_shown_together() -> None:
    shared = replace(STUCK, lock="shared lock 00:1f:7+0x0")
    lines = list(told([TRAINER, shared, replace(shared, pid=13, worker=2)], asked=10))
    assert "  workers 1, 2 (pids 12, 13) all wait for the same one: shared lock 00:1f:7+0x0" in lines


def test_a_program_that_gets_on_is_said_to() -> None:
    lines = list(told([replace(TRAINER, still_s=0.0), IDLE], asked=10))
    assert lines[-1] == "nothing stands still: it was at work while we looked"


def test_what_keeps_us_from_looking_is_told_once_with_the_command_for_the_trainer() -> None:
    def blind(picture: ProcessPicture) -> ProcessPicture:
        return replace(picture, threads=(), why_no_stack="no rights", to_see_stack=f"sudo dump {picture.pid}")

    lines = list(told([blind(TRAINER), blind(STUCK)], asked=10))
    assert lines[-2:] == ["no Python stack: no rights", "  to see it: sudo dump 10"]
