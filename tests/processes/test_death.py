"""A sample that ends its worker every time is an error that names the worker, how it ended, the batch and the sample."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drop_in.harness import Way
from processes import datasets
from processes.datasets import Dying, Numbers

DEATHS = {
    datasets.exit_0: r"\b(code|status)\D{0,4}0\b",
    datasets.exit_3: r"\b(code|status)\D{0,4}3\b",
    datasets.sys_exit_4: r"\b(code|status)\D{0,4}4\b",
    datasets.be_killed: r"SIGKILL|signal\D{0,4}(9|Killed)",
    datasets.segfault: r"SIGSEGV|signal\D{0,4}(11|Segmentation)",
    datasets.abort: r"SIGABRT|signal\D{0,4}(6|Aborted)",
}

pytestmark = pytest.mark.usefixtures("not_for_torch")


def load_until_error(batches: Any) -> tuple[list[Any], RuntimeError]:
    """Batches that came before the error, and the error."""
    seen = []
    try:
        for batch in batches:
            seen.append(batch.tolist())
    except RuntimeError as error:
        return seen, error
    pytest.fail(f"no error, but batches {seen}")


@pytest.mark.long(but=4)
@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.__name__)
def test_a_worker_that_dies_at_a_sample_is_named(way: Way, tmp_path: Path, death: Callable[[], None]) -> None:
    dataset = Dying(16, bad=7, note=tmp_path / "note", death=death)
    seen, error = load_until_error(iter(way.make(dataset, batch_size=2, num_workers=2)))
    pid = dataset.note.read_text().split()[0]
    text = str(error)
    assert seen == [[0, 1], [2, 3], [4, 5]][: len(seen)]
    assert "DataLoader worker (pid" in text
    assert re.search(rf"\b{pid}\b", text), text
    assert re.search(r"\bworker 1\b", text), text
    assert re.search(r"\bbatch 3, sample 7\b", text), text
    assert re.search(DEATHS[death], text), text


def test_batches_that_were_loaded_before_a_death_are_delivered_first(way: Way, tmp_path: Path) -> None:
    dataset = Dying(16, bad=7, note=tmp_path / "note", death=datasets.exit_3)
    seen, _ = load_until_error(iter(way.make(dataset, batch_size=2, num_workers=1)))
    assert seen == [[0, 1], [2, 3], [4, 5]]


def test_a_worker_that_dies_in_worker_init_fn_is_named(way: Way) -> None:
    _, error = load_until_error(iter(way.make(Numbers(4), worker_init_fn=die_in_worker_0)))
    assert re.search(r"\bworker 0\b", str(error)), str(error)
    assert re.search(DEATHS[datasets.exit_3], str(error)), str(error)


def die_in_worker_0(worker: int) -> None:
    if worker == 0:
        datasets.exit_3()


def test_a_loader_works_again_after_a_death(way: Way, tmp_path: Path) -> None:
    dataset = Dying(8, bad=3, note=tmp_path / "note", death=datasets.segfault)
    loader = way.make(dataset, batch_size=2, persistent_workers=True)
    load_until_error(iter(loader))
    loader._iterator = None
    healthy = way.make(Numbers(8), batch_size=2)
    assert [batch.tolist() for batch in healthy] == [[0, 1], [2, 3], [4, 5], [6, 7]]
