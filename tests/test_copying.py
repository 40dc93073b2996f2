"""A copy of a dataset to be read beside it: it shares what cannot be copied, and nothing else."""

import copy
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from antifreeze.engine.inline.copying import copied
from antifreeze.errors import CannotCross


def with_a_lock() -> Any:
    return SimpleNamespace(buffer=[1], lock=threading.Lock())


def test_state_beside_a_lock_is_its_own() -> None:
    dataset = with_a_lock()
    dataset.inner = SimpleNamespace(buffer=dataset.buffer, lock=dataset.lock)
    other = copied(dataset)
    assert other.buffer is other.inner.buffer is not dataset.buffer
    assert other.lock is other.inner.lock is not dataset.lock
    with dataset.lock:
        assert not other.lock.locked(), "one that is held while its stream is not read would stop the other"


def test_a_lock_that_is_held_now_is_waited_for() -> None:
    dataset = with_a_lock()
    with dataset.lock:
        assert copied(dataset).lock is dataset.lock


@pytest.mark.parametrize("kind", ["rb", "r"])
def test_an_open_file_is_read_from_where_it_stands(kind: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("1\n2\n3\n")
    with open(tmp_path / "lines", kind) as file:
        assert int(file.readline()) == 1
        dataset = SimpleNamespace(file=file, lock=threading.Lock())
        others = [copied(dataset), copied(dataset)]
        assert [[int(line) for line in each.file] for each in (*others, dataset)] == [[2, 3]] * 3
        for other in others:
            other.file.close()


def test_conditions_and_queues_go_on_working() -> None:
    dataset = SimpleNamespace(condition=threading.Condition(), queue=queue.Queue(), event=threading.Event())
    dataset.queue.put(1)
    other = copied(dataset)
    other.queue.put(2)
    other.event.set()
    assert (other.queue.get(), other.queue.get(), dataset.queue.qsize(), dataset.event.is_set()) == (1, 2, 1, False)
    with other.condition:
        assert not other.condition.wait(0.0)


def test_a_pool_is_shared_whole() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(abs, -1).result(10) == 1
        dataset = SimpleNamespace(pool=pool, buffer=[])
        other = copied(dataset)
        assert other.pool is pool
        assert other.buffer is not dataset.buffer


class Refuses:
    def __deepcopy__(self, _: Any) -> NoReturn:
        raise ValueError("there is only one")

    def __copy__(self) -> NoReturn:
        raise ValueError("there is only one")


def test_what_refuses_to_be_copied_is_shared_unless_it_is_the_dataset_itself() -> None:
    dataset = SimpleNamespace(part=Refuses(), buffer=[])
    other = copied(dataset)
    assert other.part is dataset.part
    assert other.buffer is not dataset.buffer
    with pytest.raises(CannotCross, match="Refuses cannot be copied"):
        copied(Refuses())


def test_what_can_be_copied_is_copied_as_ever() -> None:
    dataset = [[1], {2: [3]}]
    other = copied(dataset)
    assert other == dataset == copy.deepcopy(dataset)
    assert other[0] is not dataset[0]


def test_a_copy_that_shares_its_buffers_is_told(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("antifreeze.observe.say._said", set())
    monkeypatch.setattr("antifreeze.engine.inline.copying.MOST_EXCEPTIONS", 0)
    dataset = with_a_lock()
    assert copied(dataset).buffer is dataset.buffer
    assert "SimpleNamespace is read once for each worker number" in capfd.readouterr().err
