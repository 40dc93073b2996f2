"""The stem is torch's choice, unless a fork is known to break something."""

import pytest

from antifreeze.engine.backends.choice import Clean, Grown, Hazard, choose

HAZARD = Hazard("dataset.client.sock", "an open socket", "forked workers would share it")


def test_a_fork_stays_a_fork_where_nothing_speaks_against_it() -> None:
    assert choose("fork", None) == Grown()


def test_a_hazard_is_the_reason_not_to_fork() -> None:
    assert choose("fork", HAZARD) == Clean(HAZARD)


@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_where_torch_does_not_fork_there_is_nothing_to_explain(start_method: str) -> None:
    assert choose(start_method, None) == Clean(None)
    assert choose(start_method, HAZARD) == Clean(None)


def test_a_hazard_reads_as_a_sentence() -> None:
    assert str(HAZARD) == "dataset.client.sock is an open socket: forked workers would share it"
