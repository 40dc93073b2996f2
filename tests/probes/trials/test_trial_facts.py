"""What processes have written down → the trial."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antifreeze.doctor.facts import Outcome, Place, Raised, Trial
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.trials import record_files, records
from antifreeze.probes.trials.hang_detector import TrialVerdict
from antifreeze.probes.trials.trial_facts import contents_of, read_trial, samples_to_blame

PLACES = PlaceMaker(base="/data", cwd="/data")
PLAN = records.TrialPlan(number=1, loader=0, engine="torch", workers=2, is_as_written=True)
END = records.TrialProgress(passes=1, batches=1, seconds=1.0)
HANGS = records.SeenFromOutside(verdict=TrialVerdict.HANGS)


class Directory:
    """Of one trial, as its processes would fill it."""

    def __init__(self, path: Path, **plan: Any) -> None:
        self.path = path
        record_files.write_whole(
            path / record_files.ABOUT, records.TrialStart(plan=replace(PLAN, **plan), pid=7, can_end=True, began=0.0)
        )

    def trainer(self, *records: records.TrainerRecord) -> "Directory":
        for record in records:
            record_files.add_record(record_files.trainer_log(self.path), record)
        return self

    def worker(self, number: int, *records: records.WorkerRecord, stage: str = "idle", sample: str = "") -> "Directory":
        files = record_files.WorkerFiles.of(self.path, number, 10 + number)
        state = record_files.StateFile(files.state)
        state.write(stage, samples=4, batches=2, slowest_s=0.1, sample=sample)
        state.close()
        for record in records:
            record_files.add_record(files.log, record)
        return self

    def outside(self, seen: records.SeenFromOutside) -> "Directory":
        record_files.write_whole(self.path / record_files.OUTSIDE, seen)
        return self

    def trial(self) -> Trial:
        trial = read_trial(self.path, PLACES)
        assert trial is not None
        return trial


def failure(kind: str = "KeyError", *, stage: str = "fetch", **more: Any) -> Raised:
    return Raised(type=kind, message="5", stage=stage, **more)


def exits(*exitcodes: int | None) -> records.BeforeShutdown:
    workers = tuple(records.WorkerExit(worker=n, pid=10 + n, exitcode=exitcode) for n, exitcode in enumerate(exitcodes))
    return records.BeforeShutdown(workers=workers, trainer_bytes=None)


def test_a_trial_that_has_not_begun_is_none(tmp_path: Path) -> None:
    assert read_trial(tmp_path, PLACES) is None


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        ({"batches": 8, "is_whole_epoch": True}, Outcome.OK),
        ({"batches": 60, "is_whole_epoch": False}, Outcome.OK),
        ({"batches": 8, "is_whole_epoch": False}, Outcome.SLOW),
        ({"batches": 7, "is_whole_epoch": True}, Outcome.SHORT),
    ],
)
def test_how_it_ended_follows_from_what_came(ended: dict[str, Any], outcome: Outcome, tmp_path: Path) -> None:
    trial = Directory(tmp_path, batches_expected=8).trainer(replace(END, **ended)).trial()
    assert trial.outcome is outcome


def test_what_was_seen_from_outside_counts_more(tmp_path: Path) -> None:
    trial = Directory(tmp_path).trainer(replace(END, batches=60)).outside(HANGS).trial()
    assert trial.outcome is Outcome.HANG


def test_a_worker_that_left_as_it_was_told_is_not_dead(tmp_path: Path) -> None:
    directory = Directory(tmp_path).worker(0, stage="left").worker(1, stage="fetch", sample="9")
    trial = directory.trainer(exits(0, 0), END).trial()
    (death,) = trial.deaths
    assert trial.outcome is Outcome.CRASH
    assert (death.worker, death.exitcode, death.how, death.sample) == (1, 0, "exit", "9")


def test_a_signal_has_its_name(tmp_path: Path) -> None:
    trial = Directory(tmp_path).worker(0, stage="fetch", sample="3").trainer(exits(-11, None)).trial()
    (death,) = trial.deaths
    assert (death.how, death.sample) == ("SIGSEGV", "3")


def test_what_the_worker_noted_says_more_than_what_reached_the_trainer(tmp_path: Path) -> None:
    directory = Directory(tmp_path).worker(0, failure("IndexError", sample="4", worker=0))
    directory.worker(1, failure(sample="5", worker=1))
    raised = directory.trainer(failure(stage="receive"), END).trial().raised
    assert raised is not None and (raised.type, raised.sample, raised.worker) == ("KeyError", "5", 1)


def test_an_exception_that_could_not_be_sent_is_told_as_itself(tmp_path: Path) -> None:
    directory = Directory(tmp_path).worker(0, failure("Broken", sample="5", worker=0))
    unsent = failure("PicklingError", stage="send", worker=0, culprit="the exception Broken")
    raised = directory.worker(0, records.UnsentResult(raised=unsent)).trainer(END).outside(HANGS).trial().raised
    assert raised is not None and (raised.type, raised.stage, raised.sample) == ("Broken", "send", "5")


def test_generators_that_began_alike_and_were_drawn_from_are_told(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    for number in (0, 1):
        began = {"dataset.rng": "a", "dataset.unused": "b", "dataset.own": str(number), "dataset.seeded_by_index": "c"}
        states = {"dataset.rng": "d", "dataset.own": "d", "dataset.seeded_by_index": f"by {number}"}
        drawn = [records.GeneratorDrawn(path=path, state=state) for path, state in states.items()]
        directory.worker(number, records.GeneratorsAtStart(process={}, held=began), *drawn)
    assert directory.trainer(END).trial().same_draws == ("dataset.rng",)


def test_contents_are_kept_by_worker(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    for worker, contents in ((0, {"1": 10}), (0, {"2": 20}), (1, {"1": 11})):
        directory.worker(worker, records.SampleContents(digests=contents))
    assert contents_of(directory.path) == {"1": {0: 10, 1: 11}, "2": {0: 20}}


def test_samples_that_failed_and_samples_that_kill_are_told_apart() -> None:
    raised = Raised(type="KeyError", message="", stage="fetch", sample="5")
    trial = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.ERROR, raised=raised)
    assert samples_to_blame(trial) == (["5"], [])


def test_a_trainer_that_wanted_to_exit_is_told_as_one_that_did(tmp_path: Path) -> None:
    wanted = records.ProcessExit(status=2, how="sys.exit", place=Place("train.py", 3), sample="7")
    trial = Directory(tmp_path).trainer(wanted, END).trial()
    (death,) = trial.deaths
    assert (trial.outcome, trial.raised) == (Outcome.CRASH, None)
    assert (death.worker, death.exitcode, death.how, str(death.place)) == (-1, 2, "sys.exit", "train.py:3")
