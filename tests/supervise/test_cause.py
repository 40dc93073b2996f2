"""Why a worker ended, from its exit code and the evidence."""

import signal

import pytest

from antifreeze.engine.supervise.cause import cause_of
from antifreeze.engine.supervise.stacks import Frame, Stack, Thread


def crash(*frames: Frame) -> Stack:
    return Stack("Segmentation fault", (Thread("0x1", None, True, frames),))


USER = Frame("/home/me/data.py", 14, "__getitem__")
CV2 = Frame("/v/lib/python3.11/site-packages/cv2/__init__.py", 3, "imread")


def test_a_kill_that_was_counted_is_the_oom_killers() -> None:
    cause = cause_of(-signal.SIGKILL, oom_kills_before=1, oom_kills_after=2, memory="memory limit 64 MB")
    assert (cause.is_oom, cause.sure) == (True, "certain")
    assert "memory" in cause.what
    assert cause.evidence == ("the count of OOM kills went from 1 to 2", "memory limit 64 MB")
    assert cause.advice is not None and "fewer workers" in cause.advice


def test_a_kill_that_was_not_counted_is_somebody_elses() -> None:
    cause = cause_of(-signal.SIGKILL, oom_kills_before=2, oom_kills_after=2)
    assert (cause.is_oom, cause.sure) == (False, "likely")
    assert "not by the kernel's OOM killer" in cause.what
    assert cause.evidence == ("the count of OOM kills is still 2",)


@pytest.mark.parametrize(("before", "after"), [(None, 1), (0, None), (None, None)])
def test_where_nobody_counts_lack_of_memory_is_only_possible(before: int | None, after: int | None) -> None:
    cause = cause_of(-signal.SIGKILL, oom_kills_before=before, oom_kills_after=after)
    assert (cause.is_oom, cause.sure) == (False, "possible")


def test_no_other_signal_is_taken_for_the_oom_killer() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL}:
        assert not cause_of(-number, oom_kills_before=0, oom_kills_after=1).is_oom


def test_a_crash_names_the_package_whose_code_was_entered_and_who_called_it() -> None:
    cause = cause_of(-signal.SIGSEGV, stack=crash(CV2, USER))
    assert "SIGSEGV" in cause.what and cause.sure == "certain"
    assert cause.evidence == (
        f"Python was at {CV2}",
        f"called from {USER}",
        "native code of cv2 had been entered",
    )
    assert cause.advice is not None and "another version of cv2" in cause.advice


def test_a_crash_in_what_the_user_called_directly_names_that_place_once() -> None:
    assert cause_of(-signal.SIGSEGV, stack=crash(USER)).evidence == (f"Python was at {USER}",)


@pytest.mark.parametrize("stack", [None, crash(), Stack(None, crash(USER).threads)])
def test_without_the_stack_of_a_crash_nothing_is_said_about_it(stack: Stack | None) -> None:
    cause = cause_of(-signal.SIGSEGV, stack=stack)
    assert cause.evidence == () and cause.advice is not None


def test_every_way_to_end_reads_differently() -> None:
    ways = [None, 0, 1, 7, *(-int(number) for number in signal.valid_signals())]
    texts = [cause_of(way).what for way in ways]
    assert len(set(texts)) == len(ways)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_is_named(name: str) -> None:
    assert name in cause_of(-getattr(signal, name)).what


def test_a_signal_without_a_name_has_its_number() -> None:
    assert "signal 41" in cause_of(-41).what


def test_a_bus_error_speaks_of_mapped_files() -> None:
    advice = cause_of(-signal.SIGBUS).advice
    assert advice is not None and "memory-mapped file" in advice


def test_an_exit_code_says_that_no_signal_was_there() -> None:
    cause = cause_of(0)
    assert "exit code 0" in cause.what and "os._exit" in cause.evidence[0] and cause.sure == "certain"
    assert "exit code 7" in cause_of(7).what


def test_exit_code_1_may_also_be_an_error_that_nobody_caught() -> None:
    cause = cause_of(1)
    assert "traceback" in cause.evidence[0] and cause.sure == "likely"


def test_an_end_that_nobody_saw_is_not_explained() -> None:
    cause = cause_of(None)
    assert cause.evidence == () and cause.advice is None and cause.sure == "possible"
