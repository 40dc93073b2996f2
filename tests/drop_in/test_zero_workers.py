"""`num_workers=0`: torch's own behaviour by default; policies, ledger and statistics as with workers."""

import dataclasses
import gc
import json
import os
import pickle
import random
import signal
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

import antifreeze
from antifreeze import DataLoader, Retry, StatefulDataLoader
from antifreeze.errors import SampleFailed
from antifreeze.inline import ZeroIterator
from antifreeze.observe.accounts import account_of
from antifreeze.observe.ledger import Kind
from drop_in.harness import TORCH, Maker, assert_identical, assert_same, generator_states, our_way, outcome, seed_all

pytestmark = pytest.mark.usefixtures("not_for_torch")

LENGTH, BAD = 12, 7


class Drawing(Dataset[Any]):
    """Draws from all generators that there are; one sample fails so many times."""

    def __init__(self, *, failures: int = 0, error: type[Exception] = ValueError, draws: bool = True) -> None:
        self.failures = failures
        self.error = error
        self.draws = draws
        self.rng = np.random.default_rng(3)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        drawn = (random.random(), np.random.rand(), torch.rand(2), self.rng.random()) if self.draws else ()
        if index == BAD and self.failures:
            self.failures -= 1
            raise self.error(f"sample {index}")
        return (index, *drawn)


class AtOnce(Drawing):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Items:
    """An iterator that goes on behind an exception, and gives more after its end."""

    def __init__(self, source: "Stream") -> None:
        self.source = source
        self.number = -1

    def __iter__(self) -> "Items":
        return self

    def __next__(self) -> Any:
        self.number += 1
        if self.number % (LENGTH + 1) == LENGTH:
            raise StopIteration
        return self.source.samples[self.number % (LENGTH + 1)]


class Stream(IterableDataset[Any]):
    def __init__(self, **options: Any) -> None:
        self.samples = Drawing(**options)

    def __iter__(self) -> Iterator[Any]:
        return Items(self)


class Generated(IterableDataset[int]):
    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[int]:
        yield from range(5)


def as_list(samples: list[Any]) -> list[Any]:
    return samples


def outcomes(batches: Any) -> list[Any]:
    """Every batch or error until the end of the epoch."""
    seen: list[Any] = []
    while True:
        kind, what = outcome(lambda: next(batches))
        if kind == "raised" and what[0] is StopIteration:  # whose text no loop sees
            return seen
        seen.append((kind, what))
        if kind == "raised" and what[0] is SampleFailed:  # which stays
            return seen


def named(what: Any) -> str:
    """A name for a test that is the same in every process: without addresses."""
    if isinstance(what, dict):
        return ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in what.items())
    return getattr(what, "__name__", repr(what))


LOADERS: list[dict[str, Any]] = [
    {"batch_size": 5},
    {"batch_size": 5, "drop_last": True},
    {"batch_size": 5, "collate_fn": as_list},
    {"batch_size": None},
]


# --- the default policy is torch's


@pytest.mark.parametrize("options", LOADERS, ids=named)
@pytest.mark.parametrize("dataset", [Drawing, AtOnce, Stream])
@pytest.mark.parametrize("failures", [0, 1])
def test_batches_errors_and_generators_are_torchs(dataset: type[Any], options: dict[str, Any], failures: int) -> None:
    def case(make: Maker) -> Any:
        loader = make(dataset(failures=failures), num_workers=0, **options)
        batches = iter(loader)
        seen = [outcomes(batches), generator_states(), outcomes(batches)]  # also of one that has ended
        for batch in loader:  # and what the training draws in between counts
            seen += [batch, torch.rand(1), random.random()]
        return [*seen, generator_states()]

    assert_same(our_way("default"), case)


@pytest.mark.parametrize("options", LOADERS, ids=named)
@pytest.mark.parametrize("dataset", [Drawing, AtOnce, Stream])
def test_stop_iteration_of_a_sample_ends_the_epoch_as_in_torch(dataset: type[Any], options: dict[str, Any]) -> None:
    def case(make: Maker) -> Any:
        batches = iter(make(dataset(failures=1, error=StopIteration), num_workers=0, **options))
        return [outcomes(batches), outcomes(batches)]

    assert_same(our_way("default"), case)


def test_stop_iteration_of_a_sample_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antifreeze.observe.say._said", set())
    loader = DataLoader(Drawing(failures=1, error=StopIteration, draws=False), batch_size=5)
    assert [len(batch[0]) for batch in loader] == [5]
    (record,) = loader.ledger
    assert record.kind is Kind.DOUBT and "AF325" in record.what and f"batch 1, sample {BAD}" in record.what
    assert "AF325" in capsys.readouterr().err


def test_an_exception_is_the_users_own_with_the_users_frames() -> None:
    raised = ValueError("mine")

    class Raising(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            raise raised

    def frames(loader: Any) -> list[str]:
        with pytest.raises(ValueError) as caught:
            next(iter(loader))
        assert caught.value is raised and raised.__cause__ is raised.__context__ is None
        assert not hasattr(raised, "__notes__")
        names = [frame.name for frame in traceback.extract_tb(raised.__traceback__)]
        raised.__traceback__ = None
        return names[-1:]

    assert frames(DataLoader(Raising())) == frames(TorchLoader(Raising())) == ["__getitem__"]


def test_samples_are_not_copied_and_not_kept() -> None:
    class Held(Dataset[Any]):
        def __init__(self) -> None:
            self.tensor = torch.zeros(3)

        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return self.tensor if index else np.zeros(3)

    dataset = Held()
    batches = iter(DataLoader(dataset, batch_size=2, collate_fn=as_list))
    batch = next(batches)
    assert batch[1] is dataset.tensor
    array = weakref.ref(batch[0])
    del batch
    assert array() is None


class Answering(Dataset[Any]):
    """Writes into what it is asked with."""

    def __getitem__(self, request: dict[str, int]) -> dict[str, int]:
        request["answer"] = request["number"] + 1
        return request


def test_an_index_is_the_samplers_own_object() -> None:
    requests: list[dict[str, int]] = [{"number": 1}, {"number": 2}]
    loader = DataLoader(Answering(), sampler=requests, batch_size=None, collate_fn=lambda answer: answer)
    assert all(batch is request for batch, request in zip(loader, requests, strict=True))


def test_it_is_torchs_iterator_without_threads() -> None:
    loader = DataLoader(Drawing())
    batches = iter(loader)
    next(batches)
    assert isinstance(batches, _SingleProcessDataLoaderIter)
    assert batches._profile_name == iter(TorchLoader(Drawing()))._profile_name
    assert threading.active_count() == 1
    with pytest.raises(NotImplementedError):
        pickle.dumps(batches)


def test_an_iterable_dataset_that_is_longer_than_it_says_is_warned_of_in_torchs_words() -> None:
    def case(make: Maker) -> Any:
        loader = make(Generated(), num_workers=0)
        len(loader)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            list(loader)
        return [str(each.message).partition(" at 0x")[2][16:] for each in caught]

    assert len(assert_same(our_way("default"), case)) == 2


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_iterator_that_is_dropped_is_gone_at_once(on_error: Any) -> None:
    gc.disable()
    try:
        dataset = Drawing()
        known = weakref.ref(dataset)
        batches = iter(DataLoader(dataset, on_error=on_error))
        next(batches)
        del batches, dataset
        assert known() is None
    finally:
        gc.enable()


def test_a_class_that_others_derive_is_left_to_torch() -> None:
    class Theirs(ZeroIterator):
        def _next_data(self) -> Any:
            return super()._next_data()

    loader = DataLoader(Drawing(failures=1, draws=False), on_error="skip")
    assert Theirs(loader)._zero is None
    assert next(Theirs(loader))[0].tolist() == [0]


def test_a_loader_without_a_hash_has_its_policy_too() -> None:
    class Unhashable(DataLoader[Any]):
        __hash__ = None  # type: ignore[assignment]

    loader = Unhashable(Drawing(failures=1000, draws=False), on_error="skip", max_lost=3)
    assert len(list(loader)) < LENGTH
    assert loader.ledger.counts[Kind.SAMPLE_SKIPPED]


# --- policies, ledger and statistics are those of workers


def observed(dataset: Any, options: dict[str, Any], workers: int) -> Any:
    seed_all()
    loader = DataLoader(dataset, num_workers=workers, **options)
    seen = outcomes(iter(loader))
    seen = [
        (kind, what[:1] if kind == "raised" else what) for kind, what in seen
    ]  # texts of workers begin with torch's
    records = [
        (each.kind, each.what, each.batch, each.sample, each.attempt, (each.exception or "").partition(":")[0])
        for each in loader.ledger
    ]
    statistics = loader.statistics()
    assert statistics.waiting_s > 0 and statistics.fetch_s > 0
    return seen, records, statistics.batches, statistics.samples_lost


POLICIES: list[dict[str, Any]] = [
    {"on_error": "raise"},
    {"on_error": "skip"},
    {"on_error": Retry(2, backoff_s=0)},
    {"on_error": Retry(1, backoff_s=0, then="skip")},
    {"on_error": "skip", "max_lost": 0},
    {"on_error": "skip", "max_lost": 0.01},
]


CASES: list[tuple[type[Any], dict[str, Any]]] = [
    (Drawing, {"batch_size": 5, "drop_last": True}),
    (Drawing, {"batch_size": None}),
    (AtOnce, {"batch_size": 5, "collate_fn": as_list}),
    (Stream, {"batch_size": 5}),
    (Stream, {"batch_size": None}),
]


@pytest.mark.long(but=9)
@pytest.mark.parametrize("policy", [*POLICIES, {"on_error": "replace"}], ids=repr)
@pytest.mark.parametrize(("dataset", "options"), CASES, ids=named)
def test_a_policy_does_what_it_does_with_a_worker(
    policy: dict[str, Any], dataset: type[Any], options: dict[str, Any]
) -> None:
    if policy["on_error"] == "replace" and dataset is Stream:
        pytest.skip("there is nothing to draw from")
    options = {"max_lost": 3, **policy, **options}
    alone, beside = (observed(dataset(failures=1000, draws=False), options, workers) for workers in (0, 1))
    assert_identical(beside, alone)
    assert alone[1], "something was to be recorded"


def test_a_batch_of_which_nothing_is_left_does_not_come() -> None:
    loader = DataLoader(Drawing(failures=1, draws=False), on_error="skip")
    assert [batch[0].item() for batch in loader] == [index for index in range(LENGTH) if index != BAD]
    assert loader.ledger.counts == {Kind.SAMPLE_SKIPPED: 1, Kind.BATCH_SKIPPED: 1}


@pytest.mark.parametrize("dataset", [Drawing, AtOnce])
@pytest.mark.parametrize("error", [ValueError, StopIteration])
def test_a_sample_that_is_fetched_again_leaves_no_trace(dataset: type[Any], error: type[Exception]) -> None:
    def case(make: Maker) -> Any:
        mine = make != TORCH.make
        given = {"on_error": Retry(2, backoff_s=0)} if mine else {}
        loader = make(dataset(failures=mine, error=error), batch_size=5, num_workers=0, **given)
        return [(batch, torch.rand(1)) for batch in loader], generator_states()

    assert_same(our_way("default"), case)


class MakingHolders(Dataset[Any]):
    """Makes what holds a generator when it first needs one, and fails right after that; once for each kind."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.by_kind: dict[int, list[random.Random]] = {}
        self.failed: set[int] = set()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> float:
        kind = index % 3
        if kind not in self.by_kind:
            self.by_kind[kind] = [random.Random(kind)]
        drawn = self.by_kind[kind][0].random()
        if self.fails and kind not in self.failed:
            self.failed.add(kind)
            raise ValueError
        return drawn


def test_who_fails_with_what_was_made_in_that_very_sample_makes_it_again() -> None:
    def case(make: Maker) -> Any:
        mine = make != TORCH.make
        given = {"on_error": Retry(2, backoff_s=0)} if mine else {}
        return list(make(MakingHolders(fails=mine), batch_size=2, num_workers=0, **given))

    assert_same(our_way("default"), case)


def test_a_policy_without_a_failure_draws_as_torch_does() -> None:
    def case(make: Maker) -> Any:
        given = {"on_error": "skip"} if make != TORCH.make else {}
        loader = make(Drawing(), batch_size=5, shuffle=True, num_workers=0, **given)
        return [list(loader), list(loader), generator_states()]

    assert_same(our_way("default"), case)


def test_stop_iteration_is_an_error_where_a_policy_has_tried_again() -> None:
    loader = DataLoader(Drawing(failures=9, error=StopIteration, draws=False), on_error=Retry(1, backoff_s=0))
    with pytest.raises(SampleFailed) as caught:
        list(loader)
    assert caught.value.code == "AF325"


def test_too_many_lost_samples_stay_an_error() -> None:
    batches = iter(DataLoader(Drawing(failures=1, draws=False), on_error="skip", max_lost=0))
    for _ in range(BAD):
        next(batches)
    for _ in range(2):
        with pytest.raises(SampleFailed, match="max_lost"):
            next(batches)


def test_a_sample_in_quarantine_is_not_fetched() -> None:
    loader = DataLoader(Drawing(draws=False), batch_size=None, on_error="skip")
    account_of(loader).quarantined.add(BAD)
    assert [sample[0] for sample in loader] == [index for index in range(LENGTH) if index != BAD]
    assert "quarantine" in loader.ledger[1].what


def test_the_file_of_the_ledger_is_written(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    list(DataLoader(Drawing(failures=1, draws=False), on_error="skip", ledger_file=file))
    assert [json.loads(line)["kind"] for line in file.read_text().splitlines()] == ["batch-skipped", "sample-skipped"]


def test_statistics_name_the_slowest_sample_without_a_worker() -> None:
    class Slow(Drawing):
        def __getitem__(self, index: int) -> Any:
            threading.Event().wait(0.02 if index == BAD else 0.0001)
            return index

    loader = DataLoader(Slow(), batch_size=4)
    for _ in loader:
        break  # what was spent counts, also in a pass that is not completed
    assert loader.statistics().fetch_s > 0
    list(loader)
    statistics = loader.statistics()
    assert statistics.batches == 4 and statistics.collate_s > 0
    slow = {each.sample: each for each in statistics.slowest}  # on a busy machine, any sample may be slower still
    assert slow[str(BAD)].seconds >= 0.02 and slow[str(BAD)].worker is None
    assert "worker" not in str(statistics).splitlines()[-1]


def test_loaders_of_torchs_class_obey_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE_ON_ERROR", "skip")
    antifreeze.install()
    try:
        loader = TorchLoader(Drawing(failures=1, draws=False), batch_size=5)
        assert [len(batch[0]) for batch in loader] == [5, 4, 2]
        assert account_of(loader).ledger.counts == {Kind.SAMPLE_SKIPPED: 1}
        assert account_of(loader).statistics().batches == 3
        monkeypatch.setenv("ANTIFREEZE", "0")
        with pytest.raises(ValueError, match=f"sample {BAD}"):
            list(TorchLoader(Drawing(failures=1, draws=False), batch_size=5))
    finally:
        antifreeze.uninstall()
    assert type(iter(TorchLoader([1]))) is _SingleProcessDataLoaderIter


class Stop(Exception):
    pass


@pytest.mark.parametrize("dataset", [Drawing, Stream])
@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_signal_handler_of_the_program_raises_is_no_failure_of_a_sample(
    dataset: type[Any], workers: int
) -> None:
    def stop(*_: Any) -> None:
        raise Stop

    class Signalled(dataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            if index == BAD:
                signal.raise_signal(signal.SIGUSR1)
            return index

    given = Signalled()
    if dataset is Stream:
        given.samples = given
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        loader = DataLoader(given, on_error="skip", num_workers=workers)
        account_of(loader).stays_here = "this test wants all workers in the trainer"
        with pytest.raises(Stop):
            list(loader)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("seeding", ["torch", "ticket"])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_pass_that_is_taken_up_goes_on_with_its_policy(seeding: Any, on_error: Any) -> None:
    def make() -> Any:
        seed_all()
        return StatefulDataLoader(
            Drawing(failures=1000, draws=seeding == "ticket"),
            batch_size=2,
            on_error=on_error,
            seeding=seeding,
            max_lost=2,
        )

    whole = list(make())
    first = make()
    for _ in zip(range(2), first, strict=False):
        pass
    state = first.state_dict()
    second = make()
    second.load_state_dict(state)
    assert_identical(whole[2:], list(second))
    assert {record.batch for record in second.ledger} == {BAD // 2}


def test_a_stream_that_is_taken_up_goes_on_with_its_policy() -> None:
    def make() -> Any:
        return StatefulDataLoader(Stream(failures=1000, draws=False), batch_size=2, on_error="skip", max_lost=5)

    first = make()
    batches = iter(first)
    seen = [next(batches)[0].tolist() for _ in range(5)]
    state = first.state_dict()
    second = make()
    second.load_state_dict(state)
    assert seen + [batch[0].tolist() for batch in second] == [[0, 1], [2, 3], [4, 5], [6], [8, 9], [10, 11]]
    assert len(second.ledger) == 0, "what was lost before was told before"


# --- a sample that hangs


class Stuck(Dataset[int]):
    """Comes back when its stall has been recorded."""

    loader: Any = None

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        deadline = time.monotonic() + 20
        while index == BAD and not len(account_of(self.loader).ledger) and time.monotonic() < deadline:
            time.sleep(0.01)
        return index


class StuckStream(IterableDataset[int]):
    def __init__(self) -> None:
        self.samples = Stuck()

    def __iter__(self) -> Iterator[int]:
        return map(self.samples.__getitem__, range(LENGTH))


@pytest.mark.parametrize("option", ["stall_after", "sample_timeout"])
@pytest.mark.parametrize(("dataset", "workers"), [(Stuck, 0), (StuckStream, 0), (Stuck, 1)])
def test_a_sample_that_hangs_is_reported_if_the_user_has_said_when(
    dataset: type[Any], workers: int, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = dataset()
    loader = DataLoader(given, batch_size=5, num_workers=workers, **{option: 0.1})
    (given if dataset is Stuck else given.samples).loader = loader
    account_of(loader).stays_here = "this test wants all workers in the trainer"
    account = account_of(loader)
    if workers:  # where that is a record of its own
        account.ledger.add = lambda *args, add=account.ledger.add, **facts: (  # type: ignore[method-assign]
            add(*args, **facts) if args[0] is Kind.STALL else None
        )
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    (record,) = account.ledger
    assert (record.kind, record.batch, record.sample) == (Kind.STALL, 1, str(BAD))
    assert record.stack is not None and "__getitem__" in record.stack
    said = capsys.readouterr().err
    assert "this process" in said and f"sample {BAD}" in " ".join(said.split())
    assert "in Stuck.__getitem__" in said
    assert loader.statistics().stalls == 1
    assert threading.active_count() == 1


def test_an_interruption_after_a_long_time_says_which_sample_it_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Drawing):
        def __getitem__(self, index: int) -> Any:
            if index == BAD:
                raise KeyboardInterrupt
            return index

    soon = dataclasses.replace(antifreeze.inline.options_of(DataLoader([])), stall_after_s=0)
    for options, told in ((soon, 1), (dataclasses.replace(soon, stall_after_s=60), 0)):
        monkeypatch.setattr("antifreeze.inline.options_of", lambda loader, options=options: options)
        loader = DataLoader(Interrupted(), batch_size=5)
        with pytest.raises(KeyboardInterrupt):
            list(loader)
        assert len(loader.ledger) == told
        assert (f"batch 1, sample {BAD}" in capsys.readouterr().err) == bool(told)


class Numbers(Dataset[Any]):
    """Each sample draws one random number."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, float(torch.rand(()))


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("options", [{}, {"stall_after": 60}, {"seeding": "ticket"}, {"on_error": "skip"}], ids=str)
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_threads_that_share_an_iterator_get_each_batch_once(kind: type[Any], options: dict[str, Any]) -> None:
    loader = kind(Numbers(), batch_size=None, generator=torch.Generator(), **options)
    loader.generator.manual_seed(0)
    alone = dict(loader)
    loader.generator.manual_seed(0)
    batches = iter(loader)
    got: list[list[tuple[int, float]]] = [[], [], [], []]
    threads = [threading.Thread(target=lambda into=into: into.extend(batches)) for into in got]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = [each for some in got for each in some]
    assert sorted(index for index, _ in together) == list(range(300))
    if "seeding" in options:
        assert dict(together) == alone


class Awaited(Dataset[int]):
    """The second sample comes when the event is set, and says that it is waited for."""

    def __init__(self) -> None:
        self.begun, self.event = threading.Event(), threading.Event()

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        if index == 1:
            self.begun.set()
            self.event.wait()
        return index


@pytest.mark.parametrize("options", [{}, {"seeding": "ticket"}, {"on_error": "skip"}], ids=str)
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_a_child_does_not_wait_for_a_thread_that_only_its_parent_has(kind: type[Any], options: dict[str, Any]) -> None:
    dataset = Awaited()
    batches = iter(kind(dataset, batch_size=None, **options))
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(batches))
    thread.start()
    assert dataset.begun.wait(20)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            code = 0 if next(batches) == 2 else 2
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    dataset.event.set()
    thread.join()
    assert (status, got) == (0, [0, 1, 2])
