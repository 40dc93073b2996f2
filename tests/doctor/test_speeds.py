"""How fast a trial was."""

from dataclasses import replace

import pytest

from antifreeze.doctor.facts import Outcome, Trial
from antifreeze.doctor.speeds import rate, speed


def test_speed_leaves_the_start_of_workers_out() -> None:
    trial = Trial(
        loader=0, engine="torch", workers=2, outcome=Outcome.OK, batches=5, samples=50, seconds=9.0, first_batch_s=5.0
    )
    assert speed(trial) == pytest.approx(10.0)
    assert speed(replace(trial, batches=1)) is None


def test_the_rate_of_few_batches_includes_the_first() -> None:
    trial = Trial(
        loader=0, engine="torch", workers=2, outcome=Outcome.OK, batches=3, samples=30, seconds=6.0, first_batch_s=5.0
    )
    assert rate(trial) == pytest.approx(5.0)
    assert rate(replace(trial, batches=4)) == pytest.approx(22.5)
    assert rate(replace(trial, outcome=Outcome.HANG)) is None
