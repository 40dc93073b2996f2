"""How fast a trial was; its first batch is left out, as it includes the start of the workers. Pure."""

from __future__ import annotations

import math

from antifreeze.doctor.facts import Outcome, Trial


def later_s(trial: Trial) -> float:
    """Seconds after the first batch."""
    return trial.seconds - (trial.first_batch_s or 0.0)


def batch_s(trial: Trial) -> float | None:
    """Seconds for a batch."""
    if trial.first_batch_s is None or trial.batches < 2:
        return None
    return max(0.0, later_s(trial)) / (trial.batches - 1)


def speed(trial: Trial) -> float | None:
    """Samples per second."""
    each_s = batch_s(trial)
    return trial.samples / trial.batches / each_s if each_s else None


def rate(trial: Trial) -> float | None:
    """Samples per second of a trial that went well; of one with few batches, the first included."""
    if trial.outcome not in (Outcome.OK, Outcome.SLOW) or trial.batches < 1 or trial.samples < 1 or trial.seconds <= 0:
        return None
    per_s = (speed(trial) if trial.batches >= 4 else None) or trial.samples / trial.seconds
    return per_s if 0 < per_s < math.inf else None
