"""`install()` and `antifreeze run` put the engine behind loaders that others build."""

from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from drop_in.datasets import Augmented, Numbers
from drop_in.harness import SELFTEST, TORCH, TorchLoader, Way, assert_identical, observe, our_way, tidy_up
from user_scripts import Ended

Usage = Callable[[], list[dict[str, Any]]]

pytestmark = pytest.mark.skipif(bool(SELFTEST), reason="there is nothing to install in the self-test")


@pytest.fixture
def installed() -> Iterator[None]:
    import antifreeze

    antifreeze.install()
    yield
    antifreeze.uninstall()


def torch_way(ours: Way) -> Way:
    """torch's own class, with the start method that leads to the same stem."""
    return Way("torch's class", TorchLoader, ours.context)


def two_epochs(make: Callable[..., Any]) -> Any:
    loader = make(Augmented(11), batch_size=2, shuffle=True)
    return [list(loader) for _ in range(2)]


def test_install_puts_the_engine_behind_torchs_class(ours: Way, usage: Usage, request: pytest.FixtureRequest) -> None:
    expected = observe(TORCH, two_epochs)
    tidy_up()
    request.getfixturevalue("installed")
    before = len(usage())
    assert_identical(expected, observe(torch_way(ours), two_epochs))
    records = usage()[before:]
    assert [(record["engine"], record["stem"]) for record in records] == [("antifreeze", ours.name)] * 2


def test_an_iterator_made_while_installed_works_after_uninstall(ours: Way) -> None:
    import antifreeze

    antifreeze.install()
    batches = iter(torch_way(ours).make(Numbers(6)))
    antifreeze.uninstall()
    assert [int(batch) for batch in batches] == list(range(6))


def test_importing_antifreeze_changes_nothing_and_says_nothing(run_script: Callable[..., Ended]) -> None:
    ended = run_script(
        """
import os, sys, threading
import torch.utils.data.dataloader as module
before = dict(vars(module)), dict(vars(module.DataLoader))
descriptors = os.listdir("/proc/self/fd")
import antifreeze
antifreeze.DataLoader
assert (dict(vars(module)), dict(vars(module.DataLoader))) == before
assert os.listdir("/proc/self/fd") == descriptors
assert threading.active_count() == 1
"""
    ).check()
    assert (ended.stdout, ended.stderr) == ("", "")


PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset
import torch.utils.data.dataloader as module

class Squares(Dataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return index ** 2

if __name__ == "__main__":
    import __main__
    assert __main__.__spec__ is None, __main__.__spec__
    assert DataLoader.__module__ == "torch.utils.data.dataloader"
    print([int(batch) for batch in DataLoader(Squares(), num_workers=2)])
    batches = iter(DataLoader(Squares(), num_workers=2))
    print(isinstance(batches, module._MultiProcessingDataLoaderIter), type(batches).__module__.split(".")[0])
    print(sys.argv, sys.path[0], __file__)
    raise SystemExit(7)
"""


def test_a_script_under_antifreeze_run_is_itself_and_uses_the_engine(
    run_script: Callable[..., Ended], usage: Usage
) -> None:
    ended = run_script(PROGRAM, "--epochs", "3", via="antifreeze")
    assert ended.returncode == 7, f"{ended}"
    squares, kind, place = ended.stdout.splitlines()
    assert squares == "[0, 1, 4, 9, 16, 25]"
    assert kind == "True antifreeze"
    script = place.rpartition(" ")[2]
    assert place == f"{[script, '--epochs', '3']} {script.rpartition('/')[0]} {script}"
    assert [(record["engine"], record["stem"]) for record in usage()] == [("antifreeze", "grown")] * 2


@pytest.mark.fallback
def test_antifreeze_0_switches_everything_off(usage: Usage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE", "0")
    batches = iter(our_way("grown").make(Numbers(3)))
    assert isinstance(batches._workers[0], BaseProcess)
    assert [int(batch) for batch in batches] == [0, 1, 2]
    assert not any(record["engine"] == "antifreeze" for record in usage())
