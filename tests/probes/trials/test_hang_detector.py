"""When a trial hangs, when it goes round in circles, and when it is only slow."""

from dataclasses import replace

from antifreeze.probes.trials.hang_detector import (
    BLOCKED_S,
    ENDLESS_S,
    FIRST_BLOCKED_S,
    LONGEST_S,
    LOST_S,
    HangDetector,
    ProcessSeen,
    TrialLook,
    TrialVerdict,
)

TRAINER = ProcessSeen(pid=1, stage="next", batches=3)
WORKER = ProcessSeen(pid=2, stage="fetch", samples=7, slowest_s=0.01)


class Trial:
    """A trial that is looked at twice a second, by a clock of its own."""

    def __init__(self, **more: float) -> None:
        self.now = 100.0
        self.watch = HangDetector(began=self.now, **more)

    def verdict_after(
        self, seconds: float, *, trainer: ProcessSeen = TRAINER, worker: ProcessSeen = WORKER, cpu: float = 0.0
    ) -> TrialVerdict:
        """The last verdict, if nothing changes but the time and what the worker has computed."""
        worker = replace(worker, since=self.now)
        verdict, end = TrialVerdict.GOES_ON, self.now + seconds
        while self.now <= end and verdict is TrialVerdict.GOES_ON:
            computed = replace(worker, cpu_s=worker.cpu_s + cpu * (self.now - worker.since))
            verdict = self.watch.judge(TrialLook(now=self.now, trainer=trainer, workers=(computed,)))
            self.now += 0.5
        return verdict


def test_no_sample_while_nothing_computes_is_a_hang() -> None:
    assert Trial().verdict_after(BLOCKED_S - 1) is TrialVerdict.GOES_ON
    assert Trial().verdict_after(BLOCKED_S + 1) is TrialVerdict.HANGS


def test_before_the_first_sample_there_is_more_patience() -> None:
    unborn = replace(WORKER, samples=0, slowest_s=0.0)
    trainer = replace(TRAINER, batches=0)
    assert Trial().verdict_after(BLOCKED_S + 1, worker=unborn, trainer=trainer) is TrialVerdict.GOES_ON
    assert Trial().verdict_after(FIRST_BLOCKED_S + 1, worker=unborn, trainer=trainer) is TrialVerdict.HANGS


def test_every_sample_starts_the_time_anew() -> None:
    trial = Trial()
    for samples in range(7, 12):
        assert trial.verdict_after(BLOCKED_S - 2, worker=replace(WORKER, samples=samples)) is TrialVerdict.GOES_ON
    assert trial.verdict_after(BLOCKED_S + 1) is TrialVerdict.HANGS


def test_a_sample_that_computes_far_longer_than_all_before_loops() -> None:
    assert Trial().verdict_after(ENDLESS_S - 1, cpu=0.9) is TrialVerdict.GOES_ON
    assert Trial().verdict_after(ENDLESS_S + 1, cpu=0.9) is TrialVerdict.LOOPS


def test_a_sample_that_computes_not_so_much_longer_is_slow() -> None:
    slow = replace(WORKER, slowest_s=3.0)
    assert Trial().verdict_after(LONGEST_S - 1, worker=slow, cpu=0.9) is TrialVerdict.GOES_ON
    assert Trial().verdict_after(LONGEST_S + 1, worker=slow, cpu=0.9) is TrialVerdict.TAKES_LONG


def test_a_long_first_batch_is_slow_and_no_hang() -> None:
    first = replace(WORKER, samples=0, slowest_s=0.0)
    trainer = replace(TRAINER, batches=0)
    assert Trial().verdict_after(LONGEST_S + 1, worker=first, trainer=trainer, cpu=0.9) is TrialVerdict.TAKES_LONG


def test_an_idle_worker_that_looks_up_now_and_then_does_not_hide_a_hang() -> None:
    idle = replace(WORKER, stage="idle")
    assert Trial().verdict_after(BLOCKED_S + 1, worker=idle, cpu=0.01) is TrialVerdict.HANGS


def test_what_the_trainer_computes_beside_does_not_hide_a_stuck_worker() -> None:
    trial = Trial()
    looks = [TrialLook(now=100 + n, trainer=replace(TRAINER, cpu_s=n), workers=(WORKER,)) for n in range(12)]
    assert TrialVerdict.HANGS in [trial.watch.judge(look) for look in looks]


def test_a_lost_result_is_waited_for_only_briefly() -> None:
    watch = HangDetector(began=100.0)
    idle = replace(WORKER, stage="idle")
    looks = [TrialLook(now=100.0 + n, trainer=TRAINER, workers=(idle,), has_lost_results=True) for n in range(5)]
    verdicts = [watch.judge(look) for look in looks]
    assert verdicts.index(TrialVerdict.HANGS) == LOST_S


def test_a_spawned_worker_that_is_still_importing_is_no_hang() -> None:
    newborn = ProcessSeen(pid=2, stage="")
    trainer = ProcessSeen(pid=1, stage="start")
    assert Trial().verdict_after(FIRST_BLOCKED_S + 5, trainer=trainer, worker=newborn, cpu=0.5) is TrialVerdict.GOES_ON


def test_patience_stretches_the_time() -> None:
    assert Trial(patience=2.0).verdict_after(2 * BLOCKED_S - 1) is TrialVerdict.GOES_ON
    assert Trial(patience=2.0).verdict_after(2 * BLOCKED_S + 1) is TrialVerdict.HANGS
