"""Real programs, run up to their first batch, their loaders tried, and all of it gone afterwards."""

import inspect
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.facts import Facts, Outcome, Trial
from antifreeze.doctor.finding import Weight
from antifreeze.probes.trials.examination import PREFIX, ExaminationOptions, examine
from leftovers import wait_until

HEAD = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Numbers(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        special(i)
        return i, torch.tensor(2.0 * i)

def special(i):
    pass
"""
LOOP = """
if __name__ == "__main__":
    for batch in DataLoader(Numbers(), batch_size=2, num_workers=2, **more):
        pass
    raise SystemExit("the loop was left")
"""
PROGRAMS = {
    "healthy": HEAD + "more = {}" + LOOP,
    "opens_lazily": HEAD
    + """
more, opened = {}, []
def special(i):
    if not opened:
        opened.append(os.getpid())
    assert opened == [os.getpid()], "a handle of another process"
"""
    + LOOP,
    "fails": HEAD + "more = {}\ndef special(i):\n    if i == 5:\n        raise KeyError('label 5')\n" + LOOP,
    "hangs": HEAD + "more = {}\ndef special(i):\n    if i == 5:\n        time.sleep(600)\n" + LOOP,
    "asks_a_thread": HEAD
    + """
import queue, threading
more = {}
class Numbers(Numbers):
    def __init__(self):
        self.asked, self.answers = queue.Queue(), queue.Queue()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            self.answers.put(self.asked.get())

    def __getitem__(self, i):
        self.asked.put(i)
        return self.answers.get()
"""
    + LOOP,
    "exits": HEAD + "more = {}\ndef special(i):\n    if i == 5:\n        os._exit(3)\n" + LOOP,
    "spawns": HEAD + "more = {'multiprocessing_context': 'spawn'}" + LOOP,
    "streams": HEAD
    + """
class Stream(IterableDataset):
    def __iter__(self):
        yield from range(10)

if __name__ == "__main__":
    first = DataLoader(Stream(), batch_size=5)
    for batch in first:
        print("let through", flush=True)
    for batch in DataLoader(Stream(), batch_size=2, num_workers=2):
        print("taken", flush=True)
""",
    "is_used_up": HEAD
    + """
class Stream(IterableDataset):
    def __init__(self):
        self.rest = iter(range(10))

    def __iter__(self):
        return self.rest

if __name__ == "__main__":
    loader = DataLoader(Stream(), batch_size=2, num_workers=1, persistent_workers=True)
    for epoch in range(3):
        for batch in loader:
            pass
""",
    "remembers": HEAD
    + """
def special(i):
    seen = os.environ.setdefault(f"SEEN_{i}", "")
    os.environ[f"SEEN_{i}"] += "x"
    if len(seen) == 1:
        raise ValueError("twice")

if __name__ == "__main__":
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, persistent_workers=True)
    for epoch in range(3):
        for batch in loader:
            pass
""",
    "in_a_child": HEAD
    + """
more = {}
def train():
    for batch in DataLoader(Numbers(), num_workers=1):
        pass

if __name__ == "__main__":
    import multiprocessing
    child = multiprocessing.get_context("fork").Process(target=train)
    child.start()
    child.join()
""",
    "breaks": "import sys\nprint('so far', file=sys.stderr)\nname = input()\n",
    "has_no_loader": "import sys\nprint(sys.argv[1:])\n",
}


@pytest.fixture(scope="module")
def examined(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    """All programs that tests ask for, some at a time: most of their time is the import of torch."""
    here = [
        item for item in request.session.items if isinstance(item, pytest.Function) and item.module is request.module
    ]
    sources = "".join(inspect.getsource(item.function) for item in here)
    asked = [name for name in PROGRAMS if f'"{name}"' in sources]
    directory = tmp_path_factory.mktemp("targets")

    def facts(name: str) -> Facts:
        script = directory / f"{name}.py"
        script.write_text(PROGRAMS[name])
        timeout_s = (
            60.0
            if name in ("healthy", "hangs", "spawns", "is_used_up", "remembers", "opens_lazily", "asks_a_thread")
            else 25.0
        )
        return examine([str(script), "--epochs", "3"], options=ExaminationOptions(timeout_s=timeout_s))

    with ThreadPoolExecutor(3) as pool:
        return dict(zip(asked, pool.map(facts, asked), strict=True))


def as_written(facts: Facts) -> Trial:
    trial = facts.as_written(0)
    assert trial is not None, facts
    return trial


@pytest.mark.long
def test_a_healthy_loader_is_tried_on_both_engines_and_without_workers(examined: dict[str, Facts]) -> None:
    facts = examined["healthy"]
    assert facts.run is not None and facts.run.outcome is Outcome.OK and facts.run.reached_a_loader
    assert {(trial.engine, trial.workers) for trial in facts.trials} >= {("torch", 2), ("torch", 0), ("antifreeze", 2)}
    for trial in facts.trials:
        assert (trial.outcome, trial.batches, trial.samples) == (Outcome.OK, 6, 12), trial
        assert not trial.wrong and not trial.deaths and not trial.stuck and trial.raised is None
    assert str(facts.loaders[0].built_at) == str(facts.loaders[0].iterated_at) == "healthy.py:18"


def test_what_the_trainer_opens_without_workers_is_not_there_for_other_trials(examined: dict[str, Facts]) -> None:
    trials = examined["opens_lazily"].trials
    assert {trial.outcome for trial in trials} == {Outcome.OK}
    assert [trial.workers for trial in trials][-1] == 0 and len(trials) >= 3
    assert not [each for each in diagnose(examined["opens_lazily"]) if each.weight is not Weight.POSSIBLE]


def test_the_sample_that_fails_is_named_with_its_line(examined: dict[str, Facts]) -> None:
    trial = as_written(examined["fails"])
    assert trial.outcome is Outcome.ERROR and trial.raised is not None
    assert (trial.raised.type, trial.raised.stage, trial.raised.sample) == ("KeyError", "fetch", "5")
    assert str(trial.raised.place) == "fails.py:19"
    alone = examined["fails"].trial(0, engine="torch", workers=0)
    assert alone is not None and alone.raised is not None and alone.raised.sample == "5"


def test_a_hang_is_seen_with_the_line_and_the_sample_of_each_worker(examined: dict[str, Facts]) -> None:
    trial = as_written(examined["hangs"])
    assert trial.outcome is Outcome.HANG
    stuck = next(each for each in trial.stuck if each.sample == "5")
    assert (stuck.role, stuck.stage, stuck.waits_in, str(stuck.place)) == ("worker", "fetch", "sleep", "hangs.py:19")
    assert stuck.seconds > 5 and stuck.cpu_share < 0.1
    assert trial.shutdown_s is not None and trial.shutdown_s > 4
    assert any(each.sample == "5" for each in trial.orphans)
    alone = examined["hangs"].trial(0, engine="torch", workers=0)
    assert alone is not None and alone.outcome is Outcome.HANG


def test_no_time_is_spent_on_our_engine_where_workers_wait_for_a_thread_that_reaches_no_worker(
    examined: dict[str, Facts],
) -> None:
    facts = examined["asks_a_thread"]
    assert [(trial.engine, trial.workers) for trial in facts.trials] == [("torch", 2), ("torch", 0)]
    assert facts.run is not None and "antifreeze" not in facts.run.stderr
    assert [(each.code, each.weight) for each in diagnose(facts)] == [("AF101", Weight.CERTAIN)]


def test_a_worker_that_ends_itself_is_told_with_its_status_and_its_line(examined: dict[str, Facts]) -> None:
    trial = as_written(examined["exits"])
    assert trial.outcome is Outcome.CRASH
    (death,) = trial.deaths
    assert (death.exitcode, death.how, death.sample, str(death.place)) == (3, "os._exit", "5", "exits.py:19")


def test_spawned_workers_are_watched_too(examined: dict[str, Facts]) -> None:
    trial = as_written(examined["spawns"])
    assert (trial.outcome, trial.start_method, trial.samples) == (Outcome.OK, "spawn", 12)


def test_workers_of_a_stream_that_begin_alike_are_counted(examined: dict[str, Facts]) -> None:
    facts = examined["streams"]
    trial = as_written(facts)
    assert (trial.outcome, trial.same_items, trial.has_asked_for_worker_info) == (Outcome.OK, 2, False)
    assert trial.samples == 20


def test_an_epoch_that_is_empty_or_fails_because_of_the_one_before_it_is_named(examined: dict[str, Facts]) -> None:
    for name, outcome in (("is_used_up", Outcome.SHORT), ("remembers", Outcome.ERROR)):
        trial = as_written(examined[name])
        assert (trial.outcome, trial.epochs) == (outcome, 2)
        assert [(each.code, each.weight) for each in diagnose(examined[name])] == [("AF333", Weight.LIKELY)]


def test_a_trainer_that_is_a_child_of_the_script_is_the_one_that_is_examined(examined: dict[str, Facts]) -> None:
    facts = examined["in_a_child"]
    assert facts.run is not None and facts.run.is_trainer_a_child
    assert as_written(facts).outcome is Outcome.OK


def test_a_script_that_fails_before_its_loader_is_told_with_its_error(examined: dict[str, Facts]) -> None:
    run = examined["breaks"].run
    assert run is not None and run.raised is not None
    assert (run.outcome, run.exitcode, run.reached_a_loader) == (Outcome.ERROR, 1, False)
    assert (run.raised.type, run.raised.stage, str(run.raised.place)) == ("EOFError", "script", "breaks.py:3")
    assert "so far" in run.stderr


def test_a_script_without_a_loader_is_told_as_such(examined: dict[str, Facts]) -> None:
    run = examined["has_no_loader"].run
    assert run is not None and (run.outcome, run.reached_a_loader) == (Outcome.OK, False)
    assert run.command.endswith("has_no_loader.py --epochs 3")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_whoever_interrupts_it_finds_nothing_left(signum: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import subprocess, sys\nfrom multiprocessing import shared_memory\n"
        "block = shared_memory.SharedMemory(create=True, size=100)\n"
        f"open({str(tmp_path / 'started')!r}, 'w').close()\n"
    )
    with script.open("a") as file:
        file.write("subprocess.run([sys.executable, '-c', 'import os, time; os.setsid(); time.sleep(600)'])\n")
    doctor = (
        "import sys\nfrom antifreeze.probes.trials.examination import PREFIX, ExaminationOptions, examine\n"
        "examine(sys.argv[1:], options=ExaminationOptions(timeout_s=30))"
    )
    process = subprocess.Popen([sys.executable, "-c", doctor, str(script)], stderr=subprocess.DEVNULL)
    try:
        assert wait_until((tmp_path / "started").exists, 15)
        process.send_signal(signum)
        assert process.wait(10) != 0
    finally:
        process.kill()
        process.wait()
    assert not [name for name in os.listdir(tempfile.gettempdir()) if name.startswith(PREFIX)]


@pytest.mark.long
def test_a_temporary_directory_that_is_too_far_away_for_torchs_sockets_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / ("far-" * 25)
    far.mkdir()
    monkeypatch.setenv("TMPDIR", str(far))
    monkeypatch.setattr(tempfile, "tempdir", str(far))  # where the target's sockets go, with all else of an examination
    script = tmp_path / "train.py"
    script.write_text(PROGRAMS["healthy"])
    facts = examine([str(script)], options=ExaminationOptions(timeout_s=40.0))
    assert as_written(facts).outcome is Outcome.HANG
    (found,) = diagnose(facts)
    assert (found.code, found.weight) == ("AF906", Weight.CERTAIN)
