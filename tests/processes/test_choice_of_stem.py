"""Where torch would fork: what a fork breaks is kept from it, and all that is done otherwise is said."""

import contextlib
import functools
import http.client
import http.server
import multiprocessing
import socket
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import lmdb
import pytest

from antifreeze import Fallback
from antifreeze import iterator as iterator_module
from antifreeze.engine.backends import clean
from antifreeze.observe.accounts import account_of
from antifreeze.observe.ledger import Kind
from drop_in.harness import our_class, our_way
from leftovers import base_process
from processes.datasets import Numbers, as_is
from user_scripts import Ended

pytestmark = pytest.mark.usefixtures("not_for_torch")

Usage = Callable[[], list[dict[str, Any]]]
PATIENCE_S = 10


def double(number: int) -> int:
    return 2 * number


class Doubled(Numbers):
    """Asks a pool of the program's for its samples."""

    def __init__(self, pool: Any) -> None:
        super().__init__(16)
        self.pool = pool

    def __getitem__(self, index: int) -> int:
        return next(iter(self.pool.map(double, [index])))


@contextlib.contextmanager
def used_threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2, initializer=double, initargs=(1,)) as pool:
        pool.submit(double, 1).result(PATIENCE_S)
        yield pool


def new_processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))


@contextlib.contextmanager
def used_processes() -> Iterator[ProcessPoolExecutor]:
    with new_processes() as pool:
        pool.submit(double, 1).result(PATIENCE_S)
        yield pool


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (used_threads, "dataset.pool is a thread pool in use"),
        (used_processes, "dataset.pool is a process pool"),
        (new_processes, "dataset.pool is a process pool"),
        (lambda: ThreadPool(2), "dataset.pool is a running pool"),
        (lambda: CONTEXT.Pool(1), "dataset.pool is a running pool"),
    ],
)
def test_what_a_fork_breaks_is_mended_in_the_worker(
    make: Callable[[], Any], path: str, usage: Usage, capfd: pytest.CaptureFixture[str]
) -> None:
    with make() as held:
        data = Doubled(held)
        loader = our_class()(data, batch_size=4, num_workers=2, multiprocessing_context="fork")
        for _ in range(2):
            assert [batch.tolist() for batch in loader] == [[2 * k for k in range(n, n + 4)] for n in range(0, 16, 4)]
        assert data[3] == 6  # in the trainer it is as it was
    assert [record["stem"] for record in usage()] == ["grown"] * 2
    assert capfd.readouterr().err == ""
    ledger = account_of(loader).ledger
    assert ledger.counts == {Kind.HANDLE_RENEWED: 2}
    assert all(record.what.startswith(f"{path}: ") for record in ledger)


class Plain:
    """What holds nothing that the collector could collect."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment


class Environments(Numbers):
    """Holds an LMDB environment in several places, of which workers must have one and the same."""

    def __init__(self, environment: Any) -> None:
        super().__init__(16)
        self.environment = environment
        self.plain = Plain(environment)
        self.held = {"in a dict": environment, "in a list": [environment]}
        self.read = lambda key: environment.begin().get(key)

    def __getitem__(self, index: int) -> tuple[int, bool]:
        key = str(index).encode()
        others = (self.plain.environment, self.held["in a dict"], *self.held["in a list"])
        return int(self.read(key)), all(each is self.environment for each in others)


def test_an_lmdb_environment_is_opened_again_wherever_it_stands(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as environment:
        with environment.begin(write=True) as transaction:
            for number in range(16):
                transaction.put(str(number).encode(), str(2 * number).encode())
        dataset = Environments(environment)
        loader = our_class()(dataset, num_workers=3, collate_fn=as_is, multiprocessing_context="fork")
        assert [sample for batch in loader for sample in batch] == [(2 * number, True) for number in range(16)]
        assert account_of(loader).ledger.counts == {Kind.HANDLE_RENEWED: 1}
        assert dataset[3] == (6, True)


class Written(Numbers):
    """Keeps what it has made in an LMDB environment."""

    def __init__(self, environment: Any) -> None:
        super().__init__(16)
        self.environment = environment

    def __getitem__(self, index: int) -> int:
        with self.environment.begin(write=True) as transaction:
            transaction.put(str(index).encode(), b"made")
        return index


def test_an_lmdb_environment_that_may_be_written_to_still_may(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as environment:
        loader = our_class()(Written(environment), num_workers=2, multiprocessing_context="fork")
        assert len(list(loader)) == 16
        with environment.begin() as transaction:
            assert transaction.stat()["entries"] == 16


class Renewed(Numbers):
    """A thread changes two things under a lock, from which a sample is made."""

    def __init__(self) -> None:
        super().__init__(8)
        self.lock = threading.Lock()
        self.is_at_it, self.goes_on = threading.Event(), threading.Event()
        self.image = self.label = 0

    def renew(self, seconds: float) -> None:
        with self.lock:
            self.image += 1
            self.is_at_it.set()
            self.goes_on.wait(seconds)
            self.label += 1

    def __getitem__(self, index: int) -> tuple[int, int]:
        with self.lock:
            return self.image, self.label


@pytest.mark.parametrize("seconds", [0.1, 5.0], ids=["for a moment", "for longer than is waited"])
def test_what_a_thread_changes_under_a_lock_is_not_seen_half_changed(seconds: float) -> None:
    dataset = Renewed()
    thread = threading.Thread(target=dataset.renew, args=(seconds,))
    thread.start()
    assert dataset.is_at_it.wait(PATIENCE_S)
    loader = our_class()(dataset, num_workers=2, batch_size=None, stall_after=1, multiprocessing_context="fork")
    assert [tuple(sample) for sample in loader] == [(1, 1)] * 8
    thread.join(PATIENCE_S)
    assert (Kind.IN_PROCESS in account_of(loader).ledger.counts) is (seconds > 1)


# --- connections


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.path[1:].encode() * 100
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server that answers with what it was asked for, a hundred times."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        yield running.server_address[1]
        running.shutdown()
        thread.join(PATIENCE_S)


class Fetched(Numbers):
    def __init__(self, connection: Any) -> None:
        super().__init__(60)
        self.connection = connection

    def __getitem__(self, index: int) -> bytes:
        self.connection.request("GET", f"/{index % 10}")
        return self.connection.getresponse().read()  # type: ignore[no-any-return]


def test_workers_do_not_read_answers_to_each_others_questions(server: int) -> None:
    dataset = Fetched(http.client.HTTPConnection("127.0.0.1", server, timeout=5))
    assert dataset[3] == b"3" * 100  # so that it is connected
    loader = our_class()(dataset, batch_size=2, num_workers=3, collate_fn=as_is)
    samples = [sample for batch in loader for sample in batch]
    assert samples == [str(k % 10).encode() * 100 for k in range(60)]
    assert dataset[4] == b"4" * 100  # its own connection is as it was
    dataset.connection.close()


# --- what cannot be mended


class OverSocket(Numbers):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__(4)
        self.sock = sock


def test_a_dataset_that_nobody_can_mend_is_forked_all_the_same_and_that_is_said(
    usage: Usage, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antifreeze.observe.say._said", set())
    with socket.socket() as sock:
        loader = our_class()(OverSocket(sock), num_workers=2, multiprocessing_context="fork")
        assert [int(batch) for batch in loader] == [0, 1, 2, 3]
    assert [record["stem"] for record in usage()] == ["grown"]
    (record,) = account_of(loader).ledger
    assert record.kind is Kind.RISKY_FORK
    assert record.what.startswith("dataset.sock is an open socket: ")
    said = capfd.readouterr().err
    assert said.startswith(f"antifreeze: {record.what}. To be safe")
    assert said.endswith("make it in the worker, on first use (antifreeze.per_worker)\n")
    assert said.count("antifreeze:") == 1


def test_a_calm_dataset_is_forked_without_a_word(usage: Usage, capfd: pytest.CaptureFixture[str]) -> None:
    before = base_process()
    loader = our_class()(Numbers(4), num_workers=2, multiprocessing_context="fork")
    assert [int(batch) for batch in loader] == [0, 1, 2, 3]
    assert [(record["stem"], record["reason"]) for record in usage()] == [("grown", None)]
    assert not account_of(loader).ledger
    assert capfd.readouterr().err == ""
    assert base_process() == before


# --- what stands in the way of a fresh process


def test_a_frozen_program_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(Fallback, match="this program is frozen"):
        iter(our_class()(Numbers(4), num_workers=2, multiprocessing_context="spawn"))


def test_the_base_imports_what_the_trainer_would(monkeypatch: pytest.MonkeyPatch) -> None:
    source = str(Path(clean.__file__).parents[3])
    monkeypatch.setattr(sys, "path", ["", "/override", ".", "/usr/lib/python", "relative", "/site-packages"])
    assert clean._import_path() == ["/override", "/usr/lib/python", "/site-packages", source]
    monkeypatch.setattr(sys, "path", ["/override", source, "/usr/lib/python"])
    assert clean._import_path() == ["/override", source, "/usr/lib/python"]


@pytest.mark.long
def test_nothing_is_said_about_what_a_fresh_process_leaves_open(run_script: Callable[..., Ended]) -> None:
    ended = run_script(SPAWN, env={"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "default"}).check()
    assert "ResourceWarning" not in ended.stderr


# --- what only a fork can carry


class Inheriting(Numbers):
    def __init__(self, held: Any) -> None:
        super().__init__(4)
        self.held = held


CONTEXT = multiprocessing.get_context("fork")
# Before any test: multiprocessing keeps the memory of its values for others to come.
FIRST_OF_ALL = CONTEXT.Value("i", 0)


@pytest.mark.parametrize(
    "make",
    [
        CONTEXT.RLock,
        CONTEXT.Condition,
        functools.partial(CONTEXT.Barrier, 2),
        functools.partial(CONTEXT.Value, "i", 3),
        functools.partial(CONTEXT.Array, "i", 3),
        CONTEXT.JoinableQueue,
        CONTEXT.SimpleQueue,
        lambda: (number for number in range(3)),
    ],
    ids=["RLock", "Condition", "Barrier", "Value", "Array", "JoinableQueue", "SimpleQueue", "generator"],
)
def test_what_only_a_fork_can_carry_is_inherited_also_under_spawn(make: Callable[[], Any], usage: Usage) -> None:
    held = make()
    loader = our_class()(Inheriting(held), num_workers=2, multiprocessing_context="spawn")
    assert [int(batch) for batch in loader] == [0, 1, 2, 3]
    assert [record["stem"] for record in usage()] == ["grown"]
    if hasattr(held, "close"):
        held.close()


class Counting(Numbers):
    def __init__(self, count: Any) -> None:
        super().__init__(40)
        self.count = count

    def __getitem__(self, index: int) -> int:
        with self.count.get_lock():
            self.count.value += 1
        return index


def test_what_a_fork_breaks_is_mended_also_if_only_a_fork_can_carry_the_rest() -> None:
    with used_threads() as pool:
        dataset = Doubled(pool)
        dataset.lock = CONTEXT.Lock()  # type: ignore[attr-defined]
        loader = our_class()(dataset, batch_size=4, num_workers=2, multiprocessing_context="spawn")
        assert [k for batch in loader for k in batch.tolist()] == [2 * k for k in range(16)]
        assert account_of(loader).ledger.counts == {Kind.HANDLE_RENEWED: 1}


def test_a_value_that_is_inherited_is_shared_by_all_workers_and_the_trainer() -> None:
    count = CONTEXT.Value("i", 0)
    list(our_way("clean").make(Counting(count), num_workers=3))
    assert count.value == 40


SPAWN = """
import multiprocessing
from antifreeze import DataLoader

class Counting:
    def __init__(self, context):
        self.count, self.queue, self.lock = context.Value("i", 0), context.SimpleQueue(), context.Lock()

    def __len__(self):
        return 6

    def __getitem__(self, index):
        with self.count.get_lock():
            self.count.value += 1
        with self.lock:
            self.queue.put(index)
        return index, multiprocessing.get_start_method()

if __name__ == "__main__":
    dataset = Counting(multiprocessing.get_context("spawn"))
    seen = list(DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn"))
    print(seen == [[index, "spawn"] for index in range(6)], dataset.count.value)
    print(sorted(dataset.queue.get() for _ in range(6)))
"""


@pytest.mark.long
def test_what_multiprocessing_can_send_to_a_spawned_process_is_sent(
    run_script: Callable[..., Ended], tmp_path: Path
) -> None:
    usage = tmp_path / "usage"
    ended = run_script(SPAWN, env={"ANTIFREEZE_USAGE": str(usage)}).check()
    assert ended.stdout.split("\n") == ["True 6", "[0, 1, 2, 3, 4, 5]", ""]
    assert '"stem": "clean"' in usage.read_text()


# --- libraries

POLARS = """
    import polars
    import torch
    from torch.utils.data import DataLoader, Dataset

    FRAME = polars.DataFrame({"key": [k % 8 for k in range(80_000)], "value": range(80_000)})


    def totals(key):
        return FRAME.lazy().filter(polars.col("key") == key).group_by("key").agg(polars.len()).collect().item(0, 1)


    class Totals(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, key):
            return totals(key)


    if __name__ == "__main__":
        assert totals(0) == 10_000
        assert [int(batch) for batch in DataLoader(Totals(), num_workers=2)] == [10_000] * 8
        print("done")
"""


@pytest.mark.long
def test_polars_that_has_been_used_does_not_freeze_workers(run_script: Callable[..., Ended]) -> None:
    ended = run_script(textwrap.dedent(POLARS), via="antifreeze")
    assert ended.check().stdout == "done\n"
    assert "is part of polars: its thread pool has been started" in ended.stderr


SETS_ITS_METHOD = """
    import multiprocessing

    from torch.utils.data import DataLoader

    multiprocessing.set_start_method("spawn")


    class Squares(list):
        pass


    if __name__ == "__main__":
        assert [int(batch) for batch in DataLoader(Squares([1, 4, 9]), num_workers=2)] == [1, 4, 9]
        print("done")
"""


@pytest.mark.long
def test_a_script_may_set_the_start_method_whenever_it_is_imported(run_script: Callable[..., Ended]) -> None:
    assert run_script(textwrap.dedent(SETS_ITS_METHOD), via="antifreeze").check().stdout == "done\n"


# --- a fault of ours


def test_a_fault_after_workers_were_asked_for_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = []

    class Watched(iterator_module.Pool):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            pools.append(self)

    def fail() -> None:
        raise RuntimeError("no witness")

    monkeypatch.setattr(iterator_module, "Pool", Watched)
    monkeypatch.setattr(iterator_module, "Witness", fail)
    with pytest.raises(RuntimeError, match="no witness"):
        iter(our_class()(Numbers(4), num_workers=2, multiprocessing_context="fork"))
    assert [pool.is_stopped for pool in pools] == [True]
