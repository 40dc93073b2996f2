"""From trials to a number of workers, and to what can be said as a whole."""

from dataclasses import replace
from typing import Any

import pytest

from antifreeze.doctor.advice import advise, measured, recommended, verdicts
from antifreeze.doctor.facts import (
    Facts,
    Loader,
    Machine,
    Obstacle,
    Outcome,
    Place,
    Raised,
    Run,
    Stuck,
    Trial,
    WorkerMemory,
)
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.speeds import rate

MB = 1 << 20
LOADER = Loader(number=0, num_workers=4, start_method="fork", built_at=Place("train.py", 30))
OBSTACLE = Obstacle(path="dataset.transform", what="a lambda", why="Can't pickle", place=Place("train.py", 31))


def machine(**known: Any) -> Machine:
    return Machine(cpus=64, **{"usable_cpus": 8, "memory_available_bytes": 16_000 * MB} | known)


def trial(workers: int, per_s: float | None = None, outcome: Outcome = Outcome.OK, **known: Any) -> Trial:
    """One that loaded 1000 samples in 100 batches at that rate, after a second for the first batch."""
    seconds = 1 + 990 / per_s if per_s else 1.0
    usual: dict[str, Any] = {"engine": "torch", "batches": 100, "samples": 1000, "first_batch_s": 1.0}
    return Trial(loader=0, workers=workers, outcome=outcome, seconds=seconds, **usual | known)


def advised(*trials: Trial, **known: Any) -> int | None:
    (advice,) = advise(Facts(machine=machine(**known), loaders=(LOADER,), trials=trials))
    return advice.num_workers


def test_the_start_of_the_workers_is_not_counted() -> None:
    assert rate(trial(2, 400)) == pytest.approx(400)


@pytest.mark.parametrize("outcome", [Outcome.HANG, Outcome.ERROR, Outcome.CRASH, Outcome.SHORT])
def test_what_failed_has_no_rate(outcome: Outcome) -> None:
    assert rate(trial(2, 400, outcome)) is None


def test_the_fewest_workers_within_five_percent_of_the_best_are_advised() -> None:
    assert advised(trial(1, 100), trial(2, 196), trial(4, 200), trial(8, 201)) == 2
    assert advised(trial(1, 100), trial(2, 150), trial(4, 200), trial(8, 201)) == 4


def test_workers_that_do_not_fit_into_memory_are_not_advised() -> None:
    heavy = (WorkerMemory(worker=0, first_bytes=0, last_bytes=3000 * MB),)
    tried = (trial(2, 100, memory=heavy), trial(4, 200, memory=heavy), trial(8, 400, memory=heavy))
    assert advised(*tried) == 4
    assert advised(*tried, memory_available_bytes=64_000 * MB) == 8


def test_not_more_workers_than_usable_processors_are_advised() -> None:
    assert advised(trial(2, 100), trial(4, 200), usable_cpus=2) == 2


def test_a_worker_is_better_than_none_unless_it_is_much_slower() -> None:
    assert advised(trial(0, 110), trial(1, 100)) == 1
    assert advised(trial(0, 1000), trial(1, 100), trial(2, 120)) == 0


def test_torch_counts_unless_it_does_not_work() -> None:
    ours = trial(2, 900, engine="antifreeze")
    assert advised(trial(4, 200), ours) == 4
    assert advised(trial(4, outcome=Outcome.HANG), ours) == 2
    _, why = recommended(measured([trial(4, outcome=Outcome.HANG), ours]), machine())
    assert "antifreeze" in why


def test_nothing_is_advised_if_nothing_could_be_measured() -> None:
    assert advised(trial(4, outcome=Outcome.HANG)) is None
    assert advised() is None


def test_the_curve_is_told_in_order() -> None:
    points = measured([trial(4, 200), trial(2, 900, engine="antifreeze"), trial(0, 50), trial(1, outcome=Outcome.HANG)])
    assert [(point.engine, point.workers) for point in points] == [("torch", 0), ("torch", 4), ("antifreeze", 2)]


# --- verdicts


def said(*trials: Trial, loader: Loader = LOADER, findings: tuple[Finding, ...] = (), **known: Any) -> list[str]:
    return verdicts(Facts(machine=machine(), loaders=(loader,), trials=trials, **known), findings)


def test_data_that_fails_without_workers_is_said_to_be_at_fault() -> None:
    raised = Raised(type="KeyError", message="'x'", stage="fetch", place=Place("data.py", 57), sample="11")
    failed = [trial(workers, None, Outcome.ERROR, raised=raised) for workers in (0, 4)]
    assert said(*failed) == ["the data itself fails without workers, at data.py:57: KeyError at sample 11"]


def test_a_fault_that_passed_is_not_laid_to_the_data() -> None:
    raised = Raised(type="OSError", message="", stage="fetch", sample="11")
    assert said(trial(0, None, Outcome.ERROR, raised=raised), trial(4, 200)) == []


def test_healthy_loading_is_said_and_where_the_program_is_instead() -> None:
    assert said(trial(0, 50), trial(4, 200))[0].startswith("loading is healthy; the freeze is elsewhere, or later")
    stuck = Stuck(role="trainer", pid=1, place=Place("model.py", 88))
    run = Run(command="train.py", outcome=Outcome.HANG, reached_a_loader=True, stuck=(stuck,))
    assert said(trial(4, 200), run=run)[0].startswith("loading is healthy; the freeze is elsewhere, at model.py:88")


def test_healthy_is_said_of_what_was_tried_and_of_no_more() -> None:
    written = trial(4, 200, is_as_written=True)
    (text,) = said(written)
    assert text.endswith("(tried: 100 batches of one epoch with 4 workers)")
    (text,) = said(replace(written, is_whole_epoch=True, epochs=2), trial(0, 50), trial(1, 60), trial(2, 90))
    assert "(tried: one epoch, 100 batches, with 4 workers, and the start of a second; some batches with " in text
    assert text.endswith("with 0, 1 and 2 workers)")


def test_loading_is_not_called_healthy_beside_a_finding() -> None:
    finding = Finding(code="AF501", weight=Weight.CERTAIN, what="", why="", fix=())
    assert said(trial(4, 200), findings=(finding,)) == []


def test_loading_that_worked_is_not_called_healthy_while_something_may_break_it() -> None:
    possible = [Finding(code=code, weight=Weight.POSSIBLE, what="", why="", fix=()) for code in ("AF307", "AF406")]
    (text,) = said(trial(4, 200), findings=possible)
    assert text.startswith("loading worked in the trials") and text.endswith("; AF307 may still happen later")
    assert said(trial(4, 200), findings=possible[1:])[0].startswith("loading is healthy")


def test_what_works_with_fork_only_is_said_with_its_path_and_line() -> None:
    loader = Loader(number=0, num_workers=4, start_method="fork", obstacles=(OBSTACLE,))
    (_, text) = said(trial(4, 200, is_as_written=True), loader=loader)
    assert text.startswith(
        "loading works here with fork; it fails with spawn and forkserver (Windows, macOS, Python 3.14)"
    )
    assert text.endswith("dataset.transform at train.py:31")
    spawned = Loader(number=0, num_workers=4, start_method="spawn", obstacles=(OBSTACLE,))
    assert len(said(trial(4, 200), loader=spawned)) == 1


def test_what_two_loaders_of_one_dataset_meet_elsewhere_is_said_once() -> None:
    loader = Loader(number=0, num_workers=4, start_method="fork", obstacles=(OBSTACLE,))
    facts = Facts(loaders=(loader, replace(loader, number=1)), trials=(trial(4, 200, is_as_written=True),))
    assert sum("forkserver" in text for text in verdicts(facts)) == 1


def test_a_script_that_could_not_be_tried_is_told_so_and_why() -> None:
    raised = Raised(type="RuntimeError", message="", stage="script", place=Place("train.py", 31))
    failed = Facts(run=Run(command="train.py", outcome=Outcome.ERROR, raised=raised))
    assert verdicts(failed) == [
        "nothing could be tried: the script ends before its first batch, with RuntimeError at train.py:31"
    ]
    without = Facts(run=Run(command="train.py", outcome=Outcome.OK))
    assert verdicts(without) == ["nothing could be tried: the script iterates no DataLoader"]


def test_a_script_that_was_only_read_has_no_verdict() -> None:
    assert verdicts(Facts()) == []
