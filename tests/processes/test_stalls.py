"""Workers that get stuck: named, helped out, and never the end of an epoch; workers that are slow: left alone."""

import contextlib
import itertools
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from antifreeze import DataLoader
from antifreeze.engine import epoch
from antifreeze.errors import WorkerCrashed, WorkerFrozen, WorkerKilled
from antifreeze.observe.accounts import account_of
from antifreeze.observe.ledger import Kind
from drop_in.harness import Way
from processes.faulty import be_stopped, hold_the_gil, sleep, wait_on_a_lock, wait_on_a_pipe, wait_on_a_socket
from processes.test_recovery import assert_same

pytestmark = pytest.mark.usefixtures("not_for_torch")

LENGTH = 48
SICK = 21


class SickOnce(Dataset[Any]):
    """One sample gets stuck, in the first worker that comes to it."""

    def __init__(self, flag: Path, trouble: Any, *, every_time: bool = False) -> None:
        self.flag = flag
        self.trouble = trouble
        self.every_time = every_time

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        if index == SICK and (self.every_time or not self.flag.exists()):
            self.flag.touch()
            self.trouble()
        return {"index": torch.tensor(index), "drawn": torch.rand(3) + random.random()}


@pytest.fixture
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANTIFREEZE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def load(dataset: Dataset[Any], way: Way | None = None, **options: Any) -> tuple[list[int], Any]:
    context = {} if way is None else {"multiprocessing_context": "fork" if way.name == "grown" else "spawn"}
    loader: Any = DataLoader(dataset, batch_size=4, num_workers=2, **{"stall_after": 1, **context, **options})
    seen = [int(index) for batch in loader for index in batch["index"]]
    return seen, account_of(loader).ledger


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    "trouble",
    [sleep, wait_on_a_socket, wait_on_a_lock, wait_on_a_pipe, hold_the_gil, be_stopped],
    ids=lambda trouble: trouble.__name__,
)
def test_another_worker_does_what_one_is_stuck_at(
    trouble: Any, tmp_path: Path, state_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen, ledger = load(SickOnce(tmp_path / "flag", trouble))
    assert seen == list(range(LENGTH))
    assert ledger.counts[Kind.STALL] == 1
    assert ledger.counts[Kind.HEDGE_WON] == 1
    stall = next(record for record in ledger if record.kind is Kind.STALL)
    assert (stall.worker, stall.batch, stall.sample) == (1, SICK // 4, str(SICK))
    said = capfd.readouterr().err
    assert f"sample {SICK} (batch {SICK // 4}" in said
    assert len(said.splitlines()) <= 10
    if trouble is not be_stopped:  # which cannot say anything
        assert trouble.__name__ in (stall.stack or "")
        assert "faulty.py:" in said
        assert any(trouble.__name__ in file.read_text() for file in state_folder.rglob("stall-1.txt"))


def test_a_worker_of_a_clean_stem_is_helped_out_too(tmp_path: Path, state_folder: Path) -> None:
    seen, ledger = load(SickOnce(tmp_path / "flag", sleep), multiprocessing_context="spawn")
    assert seen == list(range(LENGTH))
    assert ledger.counts[Kind.HEDGE_WON] == 1


def test_what_another_worker_does_is_bit_for_bit_what_the_first_would_have_done(
    tmp_path: Path, state_folder: Path
) -> None:
    def batches(flag: Path) -> list[Any]:
        torch.manual_seed(5)
        loader: Any = DataLoader(SickOnce(flag, sleep), batch_size=4, num_workers=2, stall_after=1)
        return [{name: part.clone() for name, part in batch.items()} for batch in loader]

    (tmp_path / "calm").touch()
    assert_same(batches(tmp_path / "sick"), batches(tmp_path / "calm"))


class SickTwice(SickOnce):
    """Two samples of one batch get stuck, each once: whoever gets past the first is stuck at the second."""

    def __getitem__(self, index: int) -> Any:
        second = self.flag.with_suffix(".second")
        if index == SICK + 1 and not second.exists():
            second.touch()
            self.trouble()
        return super().__getitem__(index)


def test_a_hedge_that_gets_stuck_further_on_is_helped_in_its_turn(tmp_path: Path, state_folder: Path) -> None:
    seen, ledger = load(SickTwice(tmp_path / "flag", sleep))
    assert seen == list(range(LENGTH))
    assert ledger.counts[Kind.HEDGE_STARTED] == 2


class SickBefore(SickOnce):
    """The sample before it gets stuck as well, when it is fetched for the second time, by whoever comes to help."""

    def __getitem__(self, index: int) -> Any:
        seen, struck = self.flag.with_suffix(".seen"), self.flag.with_suffix(".struck")
        if index == SICK - 1 and seen.exists() and not struck.exists():
            struck.touch()
            self.trouble()
        if index == SICK - 1:
            seen.touch()
        return super().__getitem__(index)


def test_a_hedge_that_gets_stuck_before_that_makes_way_for_another(tmp_path: Path, state_folder: Path) -> None:
    seen, ledger = load(SickBefore(tmp_path / "flag", sleep))
    assert seen == list(range(LENGTH))
    assert ledger.counts[Kind.HEDGE_STARTED] == 2
    assert ledger.counts[Kind.HEDGE_GIVEN_UP] == ledger.counts[Kind.HEDGE_WON] == 1


class DeadlyToHedges(SickOnce):
    """Whoever comes to help dies, each at another sample, until the third."""

    def __getitem__(self, index: int) -> Any:
        died = self.flag.with_suffix(f".died-{index}")
        if self.flag.exists() and index in (SICK + 1, SICK + 2) and not died.exists():
            died.touch()
            os._exit(3)
        return super().__getitem__(index)


def test_hedges_that_die_do_not_count_as_stuck(tmp_path: Path, state_folder: Path) -> None:
    seen, ledger = load(DeadlyToHedges(tmp_path / "flag", sleep))
    assert seen == list(range(LENGTH))
    assert ledger.counts[Kind.HEDGE_STARTED] == 3


class Clinging:
    """Part of a sample; the worker that made it gets stuck when it lets go of it."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __del__(self) -> None:
        with contextlib.suppress(FileExistsError):
            self.flag.touch(exist_ok=False)
            sleep()


class SickAfterwards(Dataset[Any]):
    """One worker gets stuck when it has done its first batch, another one, or its successor, in the last batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        (self.folder / str(index)).touch()
        with contextlib.suppress(FileExistsError):
            if index == 9:
                (self.folder / "last").touch(exist_ok=False)
                sleep()
        return index, Clinging(self.folder / "first") if index == 0 else None

    def collate(self, samples: Any) -> int:
        """The first batch takes so long that others take over what waits behind it."""
        deadline = time.monotonic() + 20
        while samples[0][0] == 0 and not (self.folder / "6").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return int(samples[0][0])


def test_a_stuck_worker_that_nobody_waits_for_does_not_keep_others_from_having_a_hedge(
    tmp_path: Path, state_folder: Path
) -> None:
    dataset = SickAfterwards(tmp_path)
    loader: Any = DataLoader(
        dataset,
        batch_size=1,
        num_workers=2,
        prefetch_factor=4,
        seeding="ticket",
        collate_fn=dataset.collate,
        stall_after=1,
        sample_timeout=20,
    )
    assert list(loader) == list(range(10))
    assert (tmp_path / "first").exists()
    stuck = {record.worker for record in account_of(loader).ledger if record.kind is Kind.STALL}
    assert stuck == {0, 1}


class Lagging(SickOnce):
    """One sample takes longer than a stall."""

    def __getitem__(self, index: int) -> Any:
        if index == SICK:
            self.lag()
        return super().__getitem__(index)

    def lag(self) -> None:
        time.sleep(5)


class LaggingUntilReported(Lagging):
    """What is called a stall depends on how fast the machine is."""

    def lag(self) -> None:
        wait_until(lambda: any(self.flag.parent.rglob("stall-1.txt")))


class LaggingUntilHelped(Lagging):
    """The first worker to come there goes on when a second one has come, which stays."""

    def lag(self) -> None:
        first, second = self.flag.with_suffix(".first"), self.flag.with_suffix(".second")
        if first.exists():
            second.touch()
            time.sleep(60)
        first.touch()
        wait_until(second.exists)


def wait_until(has_come: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not has_come() and time.monotonic() < deadline:
        time.sleep(0.1)


def test_a_worker_that_comes_back_is_kept(tmp_path: Path, state_folder: Path) -> None:
    (tmp_path / "flag").touch()
    seen, ledger = load(LaggingUntilHelped(tmp_path / "flag", sleep))
    assert seen == list(range(LENGTH))
    assert ledger.counts[Kind.HEDGE_STARTED] == ledger.counts[Kind.HEDGE_LOST] == 1


class Busy(SickOnce):
    """One sample takes long because there is much to do: for itself, or for a program that it has started."""

    def __getitem__(self, index: int) -> Any:
        if index == SICK:
            self.trouble()
        return super().__getitem__(index)


def compute() -> None:
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass


def let_another_compute() -> None:
    program = "import time; end = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
    subprocess.run([sys.executable, "-S", "-c", program], check=True)


@pytest.mark.parametrize("trouble", [compute, let_another_compute], ids=lambda trouble: trouble.__name__)
def test_a_worker_that_has_much_to_do_is_not_disturbed(trouble: Any, tmp_path: Path, state_folder: Path) -> None:
    (tmp_path / "flag").touch()
    seen, ledger = load(Busy(tmp_path / "flag", trouble))
    assert seen == list(range(LENGTH))
    assert ledger.counts[Kind.HEDGE_STARTED] == 0


def copy_data(worker: int) -> None:
    """Reads and writes for longer than the limit, and uses hardly any processor."""
    with open("/dev/zero", "rb", buffering=0) as source, open(os.devnull, "wb", buffering=0) as target:
        for _ in range(20):
            target.write(source.read(1 << 10))
            time.sleep(0.1)


def test_a_worker_that_copies_data_when_it_starts_is_not_given_up(
    tmp_path: Path, state_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch, "SLICE_S", 0.2)
    (tmp_path / "flag").touch()
    seen, _ = load(SickOnce(tmp_path / "flag", sleep), stall_after=0.4, sample_timeout=1, worker_init_fn=copy_data)
    assert seen == list(range(LENGTH))


def test_without_hedges_a_stall_is_reported_and_nothing_else(tmp_path: Path, state_folder: Path) -> None:
    (tmp_path / "flag").touch()
    seen, ledger = load(LaggingUntilReported(tmp_path / "flag", sleep), hedge=False)
    assert seen == list(range(LENGTH))
    assert ledger.counts[Kind.STALL] == 1
    assert ledger.counts[Kind.HEDGE_STARTED] == 0


@pytest.mark.long
def test_a_sample_that_hangs_every_time_is_raised_with_all_that_is_known(
    tmp_path: Path, state_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WorkerFrozen) as caught:
        load(SickOnce(tmp_path / "flag", sleep, every_time=True), sample_timeout=4)
    said = capfd.readouterr().err
    assert re.search(rf"a second worker .* is stuck at the same place: batch 5, sample {SICK}, at .*faulty.py:", said)
    assert "waited for another" in said and "--sample-timeout" in said and "--on-error skip" in said
    error = caught.value
    assert (error.worker, error.batch) == (1, SICK // 4)
    assert f"sample {SICK}" in (error.where or "")
    assert "faulty.py:" in (error.where or "")
    assert error.why == "it waits in: sleep"


@pytest.mark.long
def test_a_sample_that_hangs_every_time_is_left_out_if_the_user_wants_it(tmp_path: Path, state_folder: Path) -> None:
    dataset = SickOnce(tmp_path / "flag", sleep, every_time=True)
    loader: Any = DataLoader(
        dataset, batch_size=4, num_workers=2, stall_after=1, on_error="skip", persistent_workers=True
    )
    for _ in range(2):
        seen = [int(index) for batch in loader for index in batch["index"]]
        assert seen == [index for index in range(LENGTH) if index != SICK]
    assert account_of(loader).ledger.counts[Kind.SAMPLE_QUARANTINED] == 1, "in later epochs it is not even tried"


LOCK = threading.Lock()


def hidden_lock() -> Any:
    """The lock, by a way that cannot be seen before workers are forked; else they would not be."""
    return globals()["LOCK"]


class BehindALock(Dataset[Any]):
    """Uses a lock of the program's."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        with hidden_lock():
            return {"index": torch.tensor(index)}


def test_what_workers_wait_for_in_an_inherited_lock_is_loaded_in_the_trainer(
    state_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loader: Any = DataLoader(BehindALock(), batch_size=4, num_workers=2, stall_after=1)
    with LOCK:
        iterator = iter(loader)
    for batches in (iterator, loader):
        assert [int(index) for batch in batches for index in batch["index"]] == list(range(LENGTH))
    ledger = account_of(loader).ledger
    assert (ledger.counts[Kind.HEDGE_STUCK], ledger.counts[Kind.HEDGE_WON], ledger.counts[Kind.IN_PROCESS]) == (1, 0, 2)
    said = capfd.readouterr().err
    assert "AF104 inherited-lock · likely" in said
    assert "two forked workers wait in a lock" in said and "multiprocessing_context='spawn'" in said


class DrawnBehindALock(BehindALock):
    """Holds a generator, and draws from those that all share."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(3)

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) | {"drawn": torch.rand(2, generator=self.generator) + random.random()}


@pytest.mark.parametrize("most", [LENGTH, 2], ids=["whole", "broken off"])
def test_kept_workers_that_were_lost_so_go_on_drawing_in_later_epochs(most: int, state_folder: Path) -> None:
    def epochs(kind: Any, lock: Any, **options: Any) -> list[Any]:
        torch.manual_seed(5)
        loader = kind(DrawnBehindALock(), batch_size=4, num_workers=2, shuffle=True, persistent_workers=True, **options)
        with lock:
            first = iter(loader)
        made = [list(itertools.islice(first, most)), list(loader), list(loader), [{"drawn": torch.rand(1)}]]
        return [{name: part.clone() for name, part in batch.items()} for each in made for batch in each]

    calm = epochs(DataLoader, contextlib.nullcontext())
    assert_same(epochs(DataLoader, LOCK, stall_after=1), calm)
    if most == LENGTH:
        assert_same(epochs(torch.utils.data.DataLoader, contextlib.nullcontext()), calm)


class StreamBehindALock(IterableDataset[int]):
    """Each worker has a buffer, beside a lock that cannot be copied."""

    def __init__(self, *, is_late: bool) -> None:
        self.own_lock = threading.Lock()
        self.buffer: list[int] = []
        self.is_late = is_late

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        if not self.is_late:
            with hidden_lock():
                pass
        self.buffer.clear()
        for number in range(info.id, LENGTH, info.num_workers):
            with hidden_lock():
                self.buffer.append(number)
            if len(self.buffer) > 4:
                yield self.buffer.pop(0)
        while self.buffer:
            yield self.buffer.pop(0)


@pytest.mark.parametrize("is_late", [False, True], ids=["where it begins", "at its first item"])
def test_so_are_streams_and_each_number_reads_its_own(is_late: bool, state_folder: Path) -> None:
    dataset = StreamBehindALock(is_late=is_late)
    expected = [batch.tolist() for batch in torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=2)]
    loader: Any = DataLoader(dataset, batch_size=4, num_workers=2, stall_after=1)
    with LOCK:
        iterator = iter(loader)
    assert [batch.tolist() for batch in iterator] == expected
    assert account_of(loader).ledger.counts[Kind.IN_PROCESS] == 1


class LockedLater(BehindALock):
    """Uses the lock for some samples."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) if index >= 8 else {"index": torch.tensor(index)}


@pytest.mark.long
def test_a_lock_that_stops_workers_which_have_made_samples_is_an_error(state_folder: Path) -> None:
    """It may be a deadlock of the dataset's own, which would stop the trainer as well."""
    loader: Any = DataLoader(LockedLater(), batch_size=4, num_workers=1, stall_after=1, sample_timeout=6)
    with LOCK:
        iterator = iter(loader)
    with pytest.raises(WorkerFrozen, match="made no progress"):
        list(iterator)


def test_all_is_well_when_worker_and_hedge_are_killed_at_once(tmp_path: Path, state_folder: Path) -> None:
    loader: Any = DataLoader(SickOnce(tmp_path / "flag", sleep), batch_size=4, num_workers=2, stall_after=1)
    iterator = iter(loader)
    pool = iterator._epoch._pool
    hedged = threading.Event()

    def kill_both() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not hedged.is_set():
            for hedge in list(pool.hedges.values()):
                if hedge.known_pid is not None and hedge.life.name == "ALIVE":
                    for worker in (pool.workers[hedge.number], hedge):
                        os.kill(worker.known_pid, signal.SIGKILL)
                    hedged.set()
            time.sleep(0.001)

    killer = threading.Thread(target=kill_both)
    killer.start()
    try:
        assert [int(index) for batch in iterator for index in batch["index"]] == list(range(LENGTH))
    finally:
        hedged.set()
        killer.join()


def test_a_calm_run_says_nothing_and_records_nothing(tmp_path: Path, state_folder: Path) -> None:
    (tmp_path / "flag").touch()
    _, ledger = load(SickOnce(tmp_path / "flag", sleep))
    assert len(ledger) == 0
    assert not state_folder.exists()


def test_torchs_timeout_keeps_its_meaning_and_names_worker_sample_and_place(tmp_path: Path, state_folder: Path) -> None:
    (tmp_path / "flag").touch()
    loader: Any = DataLoader(Lagging(tmp_path / "flag", sleep), batch_size=4, num_workers=2, timeout=2)
    iterator, seen = iter(loader), []
    with pytest.raises(RuntimeError, match="DataLoader timed out after 2 seconds") as caught:
        seen.extend(int(index) for batch in iterator for index in batch["index"])
    assert isinstance(caught.value, WorkerFrozen)
    assert f"batch {SICK // 4}, sample {SICK}, at " in (caught.value.where or "")
    assert Path(__file__).name in (caught.value.where or "")
    while len(seen) < LENGTH:  # as with torch, whoever goes on gets the rest
        with contextlib.suppress(WorkerFrozen):
            seen.extend(int(index) for batch in iterator for index in batch["index"])
    assert seen == list(range(LENGTH))


class SlowButSteady(Dataset[Any]):
    """A batch takes longer than any single sample may."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.7)
        return {"index": torch.tensor(index)}


@pytest.mark.long
def test_a_batch_may_take_longer_than_a_sample_may_hang(state_folder: Path) -> None:
    loader: Any = DataLoader(SlowButSteady(), batch_size=6, num_workers=1, sample_timeout=2, stall_after=2)
    assert [int(index) for batch in loader for index in batch["index"]] == list(range(12))


class DeadlyInPlace(Dataset[Any]):
    """One sample raises, and whatever takes its place ends the worker."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise ValueError("cannot decode it")
        if index >= 8:
            os._exit(7)
        return {"index": torch.tensor(index)}


def test_samples_that_kill_in_the_place_of_others_are_an_error_and_no_endless_row_of_deaths(state_folder: Path) -> None:
    loader: Any = DataLoader(DeadlyInPlace(), batch_size=4, num_workers=1, sampler=range(8), on_error="replace")
    with pytest.raises(WorkerCrashed, match="exit code 7"):
        list(loader)


class FromAQueue(Dataset[Any]):
    """Its samples are what others put into a queue, when they have it."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        return {"index": self.queue.get()}


def put_with_a_pause(queue: Any) -> None:
    for number in range(10 * LENGTH):
        if number == SICK:
            while not queue.empty():  # the workers have only started then, however long that takes
                time.sleep(0.05)
            time.sleep(4)
        queue.put(number)
        time.sleep(0.003)


@pytest.mark.parametrize("kind", ["queue", "queue of a manager"])
def test_nothing_that_is_taken_out_of_a_queue_is_lost_to_a_second_worker(kind: str, state_folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    with contextlib.ExitStack() as ends:
        queue = context.Queue() if kind == "queue" else ends.enter_context(context.Manager()).Queue()
        putting = context.Process(target=put_with_a_pause, args=(queue,), daemon=True)
        putting.start()
        ends.callback(putting.join)
        ends.callback(putting.kill)
        seen, ledger = load(FromAQueue(queue), multiprocessing_context="fork")
    assert sorted(seen) == list(range(LENGTH))
    assert ledger.counts[Kind.STALL] and not ledger.counts[Kind.HEDGE_STARTED]


class Awaiting(Dataset[Any]):
    """Its samples are there when another process says so."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        self.event.wait()
        return {"index": torch.tensor(index)}


def set_later(event: Any) -> None:
    time.sleep(7)
    event.set()


def test_workers_that_await_an_event_of_another_process_are_left_alone(state_folder: Path) -> None:
    """Whoever sets it waits until each has woken up: for ever, if one was ended."""
    context = multiprocessing.get_context("fork")
    event = context.Event()
    setting = context.Process(target=set_later, args=(event,))
    setting.start()
    seen, ledger = load(Awaiting(event), multiprocessing_context="fork")
    setting.join(20)
    assert setting.exitcode == 0
    assert seen == list(range(LENGTH))
    assert not ledger.counts[Kind.HEDGE_STARTED] and not ledger.counts[Kind.IN_PROCESS]


@pytest.mark.parametrize("replay", [True, False])
def test_items_of_a_queue_that_a_dead_worker_had_taken_are_not_lost_in_silence(
    replay: bool, state_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = multiprocessing.get_context("fork").Queue()
    for number in range(10 * LENGTH):
        queue.put(number)
    loader: Any = DataLoader(
        FromAQueue(queue), batch_size=4, num_workers=2, replay=replay, multiprocessing_context="fork"
    )
    batches = iter(loader)
    next(batches)
    os.kill(batches._workers[0].pid, signal.SIGKILL)
    with contextlib.nullcontext() if replay else pytest.raises(WorkerKilled, match="replay=False"):
        list(batches)
    assert ("holds a queue" in capfd.readouterr().err) is replay
    queue.cancel_join_thread()


class Decoded(Dataset[Any]):
    """Asks a program for each sample, over pipes; the worker is killed between a question and its answer."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag
        self.program = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        assert self.program.stdin and self.program.stdout
        self.program.stdin.write(b"%d\n" % index)
        self.program.stdin.flush()
        if index == 3 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return int(self.program.stdout.readline())


@pytest.mark.parametrize(("replay", "words"), [(None, "holds a pipe or a socket"), (False, "replay=False"), (True, "")])
def test_the_death_of_a_worker_that_shares_a_pipe_is_an_error(replay: bool | None, words: str, tmp_path: Path) -> None:
    """The next worker would take the answer that this one left unread for its own."""
    dataset = Decoded(tmp_path / "flag")
    loader: Any = DataLoader(dataset, num_workers=1, replay=replay, multiprocessing_context="fork")
    with dataset.program:
        with pytest.raises(WorkerKilled, match=words) if words else contextlib.nullcontext():
            assert len(list(loader)) == 8
        dataset.program.kill()
