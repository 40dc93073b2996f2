"""AF601: whoever waits in a collective operation is not the one who is sick."""

from dataclasses import replace

from antifreeze.doctor.checks.not_in_loading import not_in_loading
from antifreeze.doctor.checks.waits_for_another_rank import waits_for_another_rank
from antifreeze.doctor.facts import Facts, Place, ProcessPicture, ThreadPicture
from antifreeze.doctor.finding import Finding, Weight

WAITING, ELSEWHERE = waits_for_another_rank.sick.processes
STEP = Place("train.py", 12, "step", "loss.backward()")


def found(*processes: ProcessPicture) -> list[Finding]:
    return waits_for_another_rank.examine(Facts(processes=processes))


def test_the_rank_that_is_not_there_is_named_with_its_line() -> None:
    (finding,) = found(WAITING, ELSEWHERE)
    assert finding.what == "rank 0 (pid 4242) waits for another rank in barrier"
    assert finding.why == "rank 1 (pid 4250) is at train.py:21 in evaluate"
    assert finding.fix[0].startswith("antifreeze dump 4250")


def test_a_busy_rank_may_come_yet_and_one_that_stands_will_not() -> None:
    early = replace(WAITING, still_s=4.0)
    assert [each.weight for each in found(early, ELSEWHERE)] == [Weight.POSSIBLE]
    assert [each.weight for each in found(early, replace(ELSEWHERE, still_s=4.0))] == [Weight.LIKELY]
    assert [each.weight for each in found(WAITING)] == [Weight.LIKELY]


def test_a_moment_in_a_collective_operation_is_nothing() -> None:
    assert found(replace(WAITING, still_s=0.0, same_place_s=0.0), ELSEWHERE) == []


def test_where_nobody_of_python_is_on_the_stack_native_functions_tell() -> None:
    inside = Place("/x/site-packages/torch/autograd/graph.py", 979, "_engine_run_backward")
    backward = replace(
        WAITING,
        place=STEP,
        threads=(ThreadPicture(id=4242, is_main=True, frames=(inside, STEP)),),
        native=("std::condition_variable::wait (libstdc++.so.6)", "c10d::Reducer::finalize_backward (libtorch_cpu.so)"),
    )
    (finding,) = found(backward)
    assert "c10d::Reducer::finalize_backward" in finding.what
    assert found(replace(backward, native=())) == []


def test_a_launcher_of_torchs_around_the_users_code_is_no_collective_operation() -> None:
    launched = Place("/x/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", 355, "wrapper")
    computing = replace(WAITING, place=STEP, threads=(ThreadPicture(id=4242, is_main=True, frames=(STEP, launched)),))
    assert found(computing) == []


def test_who_waits_for_another_rank_is_not_said_to_be_stuck_itself() -> None:
    assert not_in_loading.examine(Facts(processes=(WAITING,))) == []
