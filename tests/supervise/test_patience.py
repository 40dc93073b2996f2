"""Waiting for a process that is being started: as long as it works, and no longer."""

import pytest

from antifreeze.engine.supervise.patience import Patience
from antifreeze.engine.supervise.watchdog import Seen


def seen(cpu_s: float = 0.0, io_bytes: int = 0, *, is_traced: bool = False, is_running: bool = False) -> Seen:
    return Seen(cpu_s, io_bytes, is_traced, is_stopped=False, waits_in=None, is_running=is_running)


@pytest.mark.parametrize("how", ["computes", "reads", "waits for a processor", "is debugged"])
def test_one_that_works_is_waited_for(how: str) -> None:
    patience = Patience(120)
    for second in range(1000):
        now = seen(
            cpu_s=0.9 * second if how == "computes" else 0.0,
            io_bytes=second // 30 if how == "reads" else 0,
            is_running=how == "waits for a processor",
            is_traced=how == "is debugged",
        )
        assert not patience.is_over(now, passed_s=1.0)


@pytest.mark.parametrize("what", [seen(), None], ids=["seen", "not seen"])
def test_one_that_does_nothing_is_not(what: Seen | None) -> None:
    patience = Patience(120)
    assert not any(patience.is_over(what, passed_s=1.0) for _ in range(119))
    assert patience.is_over(what, passed_s=1.0)
