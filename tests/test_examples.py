"""The examples of docs/resume.md and docs/seeding.md do what these pages say."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from user_scripts import Ended

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

pytestmark = [pytest.mark.usefixtures("not_for_torch")]


@pytest.fixture
def run_example(run_script: Callable[..., Ended], tmp_path: Path) -> Callable[..., Ended]:
    def run(name: str, *words: str) -> Ended:
        environment = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}  # which an optimizer makes
        return run_script((EXAMPLES / name).read_text(), *words, env=environment)

    return run


def losses_of(ended: Ended) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"^loss (\d+) (\S+)$", ended.stdout, re.MULTILINE)}


@pytest.mark.long
def test_a_training_that_was_killed_goes_on_with_the_losses_it_would_have_had(
    run_example: Callable[..., Ended], tmp_path: Path
) -> None:
    def train(checkpoint: str, *words: str) -> Ended:
        return run_example("resume.py", "--checkpoint", str(tmp_path / checkpoint), "--epochs", "2", *words)

    whole = losses_of(train("whole.pt").check())
    killed = train("run.pt", "--kill-at", "17")
    resumed = train("run.pt").check()
    assert killed.returncode == -9
    assert list(losses_of(killed)) == list(range(1, 18))
    assert list(losses_of(resumed)) == list(range(16, 25))
    assert losses_of(killed) | losses_of(resumed) == whole
    assert all(whole[step] == loss for step, loss in losses_of(killed).items())


@pytest.mark.long
def test_any_number_of_workers_gives_the_same_losses(run_example: Callable[..., Ended]) -> None:
    ended = run_example("any_number_of_workers.py").check()
    assert re.findall(r"^(\d) workers", ended.stdout, re.MULTILINE) == ["0", "1", "2", "5"]
    assert len(set(re.findall(r"workers: (.*)", ended.stdout))) == 1, ended.stdout
