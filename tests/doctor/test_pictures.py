"""Which pictures of a running program are read as a hang, and which as a program that gets on."""

from dataclasses import replace

from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.facts import Facts, Place, ProcessPicture, ThreadPicture
from antifreeze.doctor.finding import Weight
from antifreeze.doctor.pictures import as_trials

LOOP = Place("train.py", 41, "train", "for batch in loader:")
READ = Place("data.py", 57, "__getitem__", "return sock.recv(16)")
TRAINER = ProcessPicture(
    pid=10, parent=1, role="trainer", state="S", stage="next", waits_in="poll", place=LOOP, still_s=6.0
)
IDLE = ProcessPicture(pid=11, parent=10, role="worker", worker=0, state="S", stage="idle", waits_in="poll", still_s=5.0)
STUCK = ProcessPicture(
    pid=12,
    parent=10,
    role="worker",
    worker=1,
    state="S",
    stage="fetch",
    waits_in="socket",
    place=READ,
    sample="7",
    still_s=30.0,
    same_place_s=3.2,
    threads=(ThreadPicture(id=12, is_main=True, frames=(READ,)),),
)


def codes(*processes: ProcessPicture) -> list[tuple[str, Weight]]:
    return [(finding.code, finding.weight) for finding in diagnose(Facts(processes=processes))]


def test_a_worker_that_waits_outside_for_long_is_likely_to_hang_and_for_a_few_seconds_possibly() -> None:
    assert codes(TRAINER, IDLE, STUCK) == [("AF103", Weight.LIKELY)]
    assert codes(TRAINER, IDLE, replace(STUCK, still_s=4.0)) == [("AF103", Weight.POSSIBLE)]


def test_workers_that_get_on_are_no_hang_however_slow() -> None:
    at_work = replace(STUCK, still_s=0.0, same_place_s=0.0, state="R", waits_in=None, cpu_share=1.0)
    assert codes(TRAINER, IDLE, at_work) == []
    assert codes(TRAINER, at_work, replace(at_work, pid=13, worker=0)) == []


def test_workers_that_stand_while_the_trainer_gets_on_are_no_hang() -> None:
    assert codes(replace(TRAINER, still_s=0.0, stage="step"), IDLE, STUCK) == []


def test_a_worker_that_computes_at_one_sample_is_possibly_in_a_loop() -> None:
    looping = replace(STUCK, still_s=0.0, state="R", waits_in=None, cpu_share=0.9)
    assert codes(TRAINER, IDLE, looping) == [("AF108", Weight.POSSIBLE)]


def test_a_stopped_worker_is_certain() -> None:
    assert codes(TRAINER, IDLE, replace(STUCK, state="T", waits_in=None)) == [("AF112", Weight.CERTAIN)]


def test_a_batch_that_nobody_makes_is_lost_only_if_no_worker_moves() -> None:
    assert codes(TRAINER, IDLE, replace(IDLE, pid=13, worker=1)) == [("AF305", Weight.POSSIBLE)]
    sending = replace(IDLE, pid=13, worker=1, still_s=0.0, cpu_share=0.4)
    assert codes(TRAINER, IDLE, sending) == []


def test_without_stacks_only_what_the_kernel_says_is_said() -> None:
    blind = [replace(each, stage=None, place=None, threads=(), why_no_stack="?") for each in (TRAINER, IDLE, STUCK)]
    assert codes(*blind) == []
    assert codes(*blind[:2], replace(blind[2], state="T")) == [("AF112", Weight.CERTAIN)]


def test_every_trainer_has_a_trial_of_its_own_with_its_own_workers() -> None:
    other = replace(TRAINER, pid=20, rank=1)
    its_stem = ProcessPicture(pid=21, parent=20, role="stem")
    its_worker = replace(STUCK, pid=22, parent=21, role="our-worker")
    first, second = as_trials([TRAINER, IDLE, STUCK, other, its_stem, its_worker])
    assert {stuck.pid for stuck in first.stuck} == {10, 11, 12}
    assert {stuck.pid for stuck in second.stuck} == {20, 22}
    assert (first.engine, second.engine) == ("torch", "antifreeze")


def test_a_worker_that_has_ended_while_the_trainer_waits_is_certain() -> None:
    ended = replace(IDLE, state="Z", stage=None, exitcode=-9)
    assert codes(TRAINER, ended)[0][0] == "AF311"
    assert codes(TRAINER, replace(ended, exitcode=3)) == [("AF314", Weight.CERTAIN)]
    assert codes(replace(TRAINER, still_s=0.0), ended) == []


def test_the_innermost_native_library_is_named_without_what_its_file_adds() -> None:
    def library(*native: str) -> str:
        (trial,) = as_trials([TRAINER, replace(STUCK, native=native)])
        return trial.stuck[0].library

    assert library("libgomp-e985bcbb.so.1.0.0", "GOMP_parallel (libgomp-e985bcbb.so.1.0.0)") == "libgomp"
    assert library("std::condition_variable::wait (libstdc++.so.6)", "f (tokenizers.abi3.so)") == "tokenizers"
    assert library() == ""
