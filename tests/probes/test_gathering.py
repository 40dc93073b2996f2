"""What processes have written down → the trial."""

import json
from pathlib import Path
from typing import Any

import pytest

from antifreeze.doctor.facts import Outcome, Raised, Trial
from antifreeze.probes.gathering import read_trial, samples_to_blame
from antifreeze.probes.patient.journals import contents_of
from antifreeze.probes.patient.notes import Log, StateFile, read_events, read_state
from antifreeze.probes.places import Places

PLACES = Places(base="/data", cwd="/data")
ABOUT = {"loader": 0, "engine": "torch", "workers": 2, "is_as_written": True, "batches": 50, "pid": 7, "began": 0.0}


class Directory:
    """Of one trial, as its processes would fill it."""

    def __init__(self, path: Path, **about: Any) -> None:
        self.path = path
        (path / "about").write_text(json.dumps({**ABOUT, **about}))

    def driver(self, **event: Any) -> "Directory":
        return self._write("driver.events", event)

    def worker(self, number: int, *, stage: str = "idle", sample: str = "", **event: Any) -> "Directory":
        state = StateFile(str(self.path / f"w{number}-{10 + number}.state"))
        state.write(stage, samples=4, batches=2, slowest_s=0.1, sample=sample)
        state.close()
        return self._write(f"w{number}-{10 + number}.events", event)

    def outside(self, **seen: Any) -> "Directory":
        (self.path / "outside").write_text(json.dumps(seen))
        return self

    def _write(self, name: str, event: dict[str, Any]) -> "Directory":
        log = Log(str(self.path / name))
        log.write(**event)
        log.close()
        return self

    def trial(self) -> Trial:
        trial = read_trial(self.path, PLACES)
        assert trial is not None
        return trial


def failure(kind: str = "KeyError", *, stage: str = "fetch", **more: Any) -> dict[str, Any]:
    return {"type": kind, "message": "5", "stage": stage, **more}


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
    assert Directory(tmp_path, batches_expected=8).driver(ended=1.0, **ended).trial().outcome is outcome


def test_what_was_seen_from_outside_counts_more(tmp_path: Path) -> None:
    trial = Directory(tmp_path).driver(ended=1.0, batches=60).outside(verdict="hangs").trial()
    assert trial.outcome is Outcome.HANG


def test_a_worker_that_left_as_it_was_told_is_not_dead(tmp_path: Path) -> None:
    directory = Directory(tmp_path).worker(0, stage="left").worker(1, stage="fetch", sample="9")
    trial = directory.driver(ended=1.0, batches=1, exits=[[0, 10, 0], [1, 11, 0]]).trial()
    (death,) = trial.deaths
    assert trial.outcome is Outcome.CRASH
    assert (death.worker, death.exitcode, death.how, death.sample) == (1, 0, "exit", "9")


def test_a_signal_has_its_name(tmp_path: Path) -> None:
    trial = Directory(tmp_path).worker(0, stage="fetch", sample="3").driver(exits=[[0, 10, -11], [1, 11, None]]).trial()
    (death,) = trial.deaths
    assert (death.how, death.sample) == ("SIGSEGV", "3")


def test_what_the_worker_noted_says_more_than_what_reached_the_trainer(tmp_path: Path) -> None:
    directory = Directory(tmp_path).worker(0, raised=failure("IndexError", sample="4", worker=0))
    directory.worker(1, raised=failure(sample="5", worker=1))
    raised = directory.driver(ended=1.0, raised=failure(stage="receive")).trial().raised
    assert raised is not None and (raised.type, raised.sample, raised.worker) == ("KeyError", "5", 1)


def test_an_exception_that_could_not_be_sent_is_told_as_itself(tmp_path: Path) -> None:
    directory = Directory(tmp_path).worker(0, raised=failure("Broken", sample="5", worker=0))
    directory.worker(0, raised=failure("PicklingError", stage="send", worker=0, culprit="the exception Broken"))
    raised = directory.driver(ended=1.0).outside(verdict="hangs").trial().raised
    assert raised is not None and (raised.type, raised.stage, raised.sample) == ("Broken", "send", "5")


def test_generators_that_began_alike_and_were_drawn_from_are_told(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    for number in (0, 1):
        began = {"dataset.rng": "a", "dataset.unused": "b", "dataset.own": str(number), "dataset.seeded_by_index": "c"}
        directory.worker(number, generators=began)
        directory.worker(number, drawn="dataset.rng", state="d").worker(number, drawn="dataset.own", state="d")
        directory.worker(number, drawn="dataset.seeded_by_index", state=f"by {number}")
    assert directory.driver(ended=1.0).trial().same_draws == ("dataset.rng",)


def test_contents_are_kept_by_worker(tmp_path: Path) -> None:
    directory = (
        Directory(tmp_path).worker(0, contents={"1": 10}).worker(0, contents={"2": 20}).worker(1, contents={"1": 11})
    )
    assert contents_of(directory.path) == {"1": {0: 10, 1: 11}, "2": {0: 20}}


def test_samples_that_failed_and_samples_that_kill_are_told_apart() -> None:
    raised = Raised(type="KeyError", message="", stage="fetch", sample="5")
    trial = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.ERROR, raised=raised)
    assert samples_to_blame(trial) == (["5"], [])


def test_half_a_line_of_a_killed_process_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"a": 1}\n{"b": ')
    assert read_events(log) == [{"a": 1}]


def test_a_state_that_was_never_written_is_none(tmp_path: Path) -> None:
    assert read_state(tmp_path / "none") is None
    (tmp_path / "empty").touch()
    assert read_state(tmp_path / "empty") is None
