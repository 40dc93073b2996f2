"""Loading in the trainer itself, compared with what workers had."""

import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from antifreeze.doctor.facts import Outcome, Trial
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.target.content import content_of
from antifreeze.probes.target.trial_run import TrialRun
from antifreeze.probes.target.without_workers import WithoutWorkers
from antifreeze.probes.trials.record_files import END_SIGNAL
from antifreeze.probes.trials.records import TrialPlan
from antifreeze.probes.trials.trial_facts import read_trial


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index, torch.tensor(2.0 * index)


class Dice(Numbers):
    def __getitem__(self, index: int) -> Any:
        return index, random.randrange(2)


class Exits(Numbers):
    def __getitem__(self, index: int) -> Any:
        return sys.exit(4) if index == 3 else index


class Nothing(Numbers):
    def __getitem__(self, index: int) -> Any:
        try:
            return {0: "a"}[index % 5]
        except KeyError:
            return None


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = signal.getsignal(END_SIGNAL)
    yield
    signal.signal(END_SIGNAL, before)


def load(dataset: Any, directory: Path, **workers_had: Any) -> tuple[WithoutWorkers, Trial]:
    """All batches of it; what workers had is given as `_0=…`."""
    places = PlaceMaker(base=str(Path(__file__).parent), cwd="/")
    is_stream = isinstance(dataset, IterableDataset)
    plan = TrialPlan(number=1, loader=0, engine="torch", workers=0, is_stream=is_stream)
    trial_run = TrialRun(plan, directory=directory, places=places)
    had = {name.strip("_"): {0: content_of(sample).digest or 0} for name, sample in workers_had.items()}
    alone = WithoutWorkers(DataLoader(dataset, batch_size=2, collate_fn=list), trial_run, of_workers=had)
    if is_stream:
        alone.load_stream(seconds=10)
    else:
        alone.load(not_yet=[], seconds=10)
    alone.finish()
    trial = read_trial(trial_run.directory, places)
    assert trial is not None
    return alone, trial


def test_what_comes_is_counted(tmp_path: Path) -> None:
    _, trial = load(Numbers(), tmp_path)
    assert (trial.outcome, trial.is_whole_epoch) == (Outcome.OK, True)
    assert (trial.batches, trial.samples) == (4, 8)


def test_what_workers_had_otherwise_is_wrong(tmp_path: Path) -> None:
    alone, _ = load(Numbers(), tmp_path, _2=(2, torch.tensor(4.0)), _5=(5, torch.tensor(6.0)))
    assert alone.wrong == ["5"]


def test_random_samples_are_never_wrong(tmp_path: Path) -> None:
    others = {f"_{index}": (index, 2) for index in range(8)}
    assert load(Dice(), tmp_path, **others)[0].wrong == []


def test_items_that_are_not_in_the_stream_are_wrong(tmp_path: Path) -> None:
    alone, trial = load(Stream(), tmp_path, _0=4, _1=99)
    assert alone.wrong == ["1"]
    assert trial.is_whole_epoch


def test_a_dataset_that_exits_does_not_end_the_examination(tmp_path: Path) -> None:
    _, trial = load(Exits(), tmp_path)
    (death,) = trial.deaths
    assert (trial.outcome, death.exitcode, death.sample) == (Outcome.CRASH, 4, "3")


def test_why_samples_are_none_is_told(tmp_path: Path) -> None:
    _, trial = load(Nothing(), tmp_path)
    assert trial.none_samples == ("1", "2", "3", "4", "6", "7")
    assert "`KeyError`" in trial.swallowed["1"]
