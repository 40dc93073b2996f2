"""A torch that is not known is tried once, in another process; what fails is left to torch, with its reason."""

import errno
import io
import json
import os
import random
import signal
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze import DataLoader
from antifreeze.errors import ArenaError, Fallback
from antifreeze.iterator import Iterator
from antifreeze.torch_side import known, self_check, trial
from antifreeze.torch_side.self_check import Outcome
from user_scripts import Ended, StartScript


@pytest.fixture(autouse=True)
def unknown_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(known, "KNOWN_TORCH", frozenset())
    monkeypatch.setattr(self_check, "_outcome", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def no_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("this torch must not be tried")

    monkeypatch.setattr(self_check, "_tried", fail)


def kept(tmp_path: Path) -> list[Any]:
    return [json.loads(path.read_text())["failed"] for path in (tmp_path / "cache/antifreeze").glob("*")]


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "_outcome", None)


class Other(trial.WorkersIterator):
    """An engine that draws other random numbers."""

    def __init__(self, loader: Any) -> None:
        loader.generator.manual_seed(1)
        super().__init__(loader)


def stuck(_loader: Any) -> Any:
    time.sleep(60)


def out_of_memory(_loader: Any) -> Any:
    os._exit(137)


# --- a torch on which the engine runs


def test_an_unknown_torch_is_tried_and_the_result_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(DataLoader(range(4), num_workers=1)) == [0, 1, 2, 3]
    assert kept(tmp_path) == [None]
    forget(monkeypatch)
    monkeypatch.setattr(self_check, "_tried", None)  # it would be called
    assert list(DataLoader(range(4), num_workers=1)) == [0, 1, 2, 3]


def test_a_known_release_is_not_tried(monkeypatch: pytest.MonkeyPatch, no_trials: None) -> None:
    monkeypatch.setattr(known, "KNOWN_TORCH", frozenset({torch.__version__.partition("+")[0]}))
    assert self_check.why_unfit(Iterator, may_fork=True) is None


@pytest.mark.parametrize(
    ("version", "is_release"),
    [("2.13.0", True), ("2.13.0+cu130", True), ("2.13.0.dev20260401+cpu", False), ("2.13.0a0+git1", False)],
)
def test_only_the_release_itself_is_known(monkeypatch: pytest.MonkeyPatch, version: str, is_release: bool) -> None:
    monkeypatch.setattr(known, "KNOWN_TORCH", frozenset({"2.13.0"}))
    assert known.is_known(version) is is_release


def test_a_trial_changes_nothing_in_the_trainer(capfd: pytest.CaptureFixture[str]) -> None:
    def state() -> list[Any]:
        return [
            torch.get_rng_state().tolist(),
            random.getstate(),
            str(np.random.get_state()),
            list(warnings.filters),
            [signal.getsignal(number) for number in sorted(signal.valid_signals())],
            sorted(os.listdir("/proc/self/fd"))[:-1],
            threading.active_count(),
            torch.get_default_dtype(),
            dict(os.environ),
        ]

    torch.set_default_dtype(torch.float64)
    stop = threading.Event()
    beside = threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(stop.is_set, True)])
    beside.start()
    try:
        before = state()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert self_check._in_fork(Iterator) == Outcome(None)
        assert state() == before
    finally:
        stop.set()
        beside.join()
        torch.set_default_dtype(torch.float32)
    assert capfd.readouterr() == ("", "")


@pytest.mark.deadline(120)
def test_a_trial_does_not_wait_for_threads_of_openmp(run_script: Callable[..., Ended]) -> None:
    """An old libgomp, as torch 2.6 brings it, cannot end them before a fork, and waits for them in the child."""
    ended = run_script(
        "import torch\nfrom antifreeze.iterator import Iterator\nfrom antifreeze.torch_side import self_check\n"
        "torch.set_num_threads(2)\ntorch.ones(2000, 2000).exp().sum()\n"
        "print(self_check._in_fork(Iterator).failed)",
    ).check()
    assert ended.stdout == "None\n"


@pytest.mark.deadline(120)
def test_a_fresh_process_does_not_import_the_main_module(run_script: Callable[..., Ended]) -> None:
    ended = run_script(
        "import sys\nfrom antifreeze.torch_side import self_check\nprint('main')\n"
        "sys.path += [None, 'a\\0b']\nprint(self_check._in_fresh_process().failed)",
    ).check()
    assert ended.stdout == "main\nNone\n"
    assert ended.stderr == ""


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"failed": null}', '{"subject": {}, "failed": "by another torch"}']
)
def test_a_result_that_cannot_be_read_counts_as_none(content: str) -> None:
    path = self_check._file_of(self_check._subject())
    path.write_text(content)
    assert self_check._kept() is None
    self_check._keep(Outcome("text"))
    assert self_check._kept() == Outcome("text")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_without_a_cache_folder_every_process_tries_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    tried = []
    monkeypatch.setattr(self_check, "_in_fork", lambda _: tried.append(1) or Outcome(None))
    for _ in range(2):
        assert self_check.why_unfit(Iterator, may_fork=True) is None
    assert tried == [1]


# --- a torch on which it does not


def test_a_failure_in_the_fork_is_judged_by_a_fresh_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The fork has what the program has patched, which says nothing about torch."""
    monkeypatch.setattr(self_check, "_in_fresh_process", lambda: Outcome(None))
    assert self_check.why_unfit(Other, may_fork=True) is None
    assert kept(tmp_path) == [None]


def test_what_differs_is_named_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(self_check, "_in_fresh_process", lambda: self_check._in_fork(Other))
    for _ in range(2):
        reason = self_check.why_unfit(Other, may_fork=False)
        assert reason is not None
        assert reason.startswith(f"torch {torch.__version__} has failed the self-check: batches[0]['")
        forget(monkeypatch)
    assert len(kept(tmp_path)) == 1


def test_in_a_frozen_program_the_fork_alone_decides_and_a_failure_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(self_check, "why_no_fresh_process", lambda: "this program is frozen")
    assert "batches" in str(self_check.why_unfit(Other, may_fork=True))
    assert kept(tmp_path) == []
    forget(monkeypatch)
    assert self_check.why_unfit(Iterator, may_fork=True) is None
    assert kept(tmp_path) == [None]


@pytest.mark.parametrize(
    ("engine", "deadline_s", "words"),
    [(stuck, 1.0, "did not end within 1 s"), (out_of_memory, 30.0, "without a word")],
)
def test_a_trial_that_does_not_answer_has_failed_and_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: Any, deadline_s: float, words: str
) -> None:
    monkeypatch.setattr(self_check, "FORK_DEADLINE_S", deadline_s)
    monkeypatch.setattr(self_check, "END_DEADLINE_S", 0.0)
    monkeypatch.setattr(self_check, "_in_fresh_process", lambda: self_check._in_fork(engine))
    assert words in str(self_check.why_unfit(engine, may_fork=False))
    assert kept(tmp_path) == []


def without_memory(_loader: Any) -> Any:
    raise ArenaError("there is no memory for a slot")


def test_a_fault_of_the_machine_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(self_check, "_in_fresh_process", lambda: self_check._in_fork(without_memory))
    assert "no memory for a slot" in str(self_check.why_unfit(without_memory, may_fork=False))
    assert kept(tmp_path) == []


def test_a_failure_is_tried_again_the_next_day() -> None:
    path = self_check._file_of(self_check._subject())
    a_day_ago = time.time() - self_check.FAILURE_KEPT_S - 60
    for outcome, then in ((Outcome("it stumbles"), None), (Outcome(None), Outcome(None))):
        self_check._keep(outcome)
        assert self_check._kept() == outcome
        os.utime(path, (a_day_ago, a_day_ago))
        assert self_check._kept() == then


class Failing(trial.WorkersIterator):
    """Torch's own iterator, on a machine on which it cannot run."""

    def __init__(self, loader: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_where_torchs_own_workers_cannot_run_the_engine_runs_and_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trial, "WorkersIterator", Failing)
    assert self_check.why_unfit(Iterator, may_fork=True) is None
    assert kept(tmp_path) == []


def test_other_batches_than_torchs_are_found_there_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "WorkersIterator", Failing)
    monkeypatch.setattr(self_check, "_in_fresh_process", lambda: self_check._in_fork(Other))
    assert "batches[0]['" in str(self_check.why_unfit(Other, may_fork=False))
    assert kept(tmp_path) == []


def test_a_ctrl_c_meanwhile_ends_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        self_check._in_fork(stuck)


def test_no_trial_outlives_a_trainer_that_is_killed(start_script: StartScript) -> None:
    script = start_script(
        """
import os, time
from antifreeze.torch_side import self_check

def stuck(loader):
    os.kill(os.getppid(), 9)
    time.sleep(1000)

self_check._in_fork(stuck)
""",
    )
    script.wait_exit(within_s=60)
    script.assert_gone()


class Tee(io.StringIO):
    """What a program may have in the place of stdout; its end is noted."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def __del__(self) -> None:
        self.path.touch()


def test_a_trial_ends_no_stream_of_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdout", Tee(tmp_path / "ended"))
    assert self_check._in_fork(lambda _: iter(())).failed is not None
    assert not (tmp_path / "ended").exists()


@pytest.mark.fallback
def test_a_loader_on_such_a_torch_runs_on_torchs_own_iterator(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(self_check, "_outcome", Outcome("it stumbles"))
    assert list(DataLoader(range(4), num_workers=1)) == [0, 1, 2, 3]
    assert capfd.readouterr().err == (
        "antifreeze: this loader runs on torch's own iterator: "
        f"torch {torch.__version__} has failed the self-check: it stumbles\n"
    )


def test_if_the_engine_is_required_that_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "_outcome", Outcome("it stumbles"))
    with pytest.raises(Fallback, match="it stumbles"):
        iter(DataLoader(range(4), num_workers=1))


def test_a_program_may_have_a_json_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "dumps", repr)
    monkeypatch.setattr(json, "loads", repr)
    assert self_check._in_fork(Iterator).failed is None
