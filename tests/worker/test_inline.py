"""The bench in the trainer: batches as workers make them, and nothing of it stays in this process."""

import random
import signal
from collections.abc import Callable, Iterator, Set
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info
from torch.utils.data._utils import collate as torch_collate

from antifreeze.engine.inline.bench import InlineBench, Refused
from antifreeze.engine.numbers import TicketNo, WorkerNo
from antifreeze.engine.plan.ticket import Ticket
from antifreeze.engine.wire.messages import Begin
from antifreeze.engine.worker.lenient import NothingLeft
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.stream import EndOfStream
from antifreeze.errors import CannotCross
from antifreeze.policy import Policy
from worker.benches import draw

WORKERS = 3
BATCHES = 9
SEED = 77


class Drawing(Dataset[Any]):
    """Samples of everything that a sample may depend on."""

    late: Any = None

    def __init__(self) -> None:
        self.torch_generator = torch.Generator().manual_seed(1)
        self.generators = {"random": random.Random(2), "numpy": np.random.default_rng(3)}
        self.unset: random.Random | None = None

    def __len__(self) -> int:
        return 4 * BATCHES

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        if self.unset is None:
            self.unset = random.Random(info.seed)
        if self.late is None:
            self.late = np.random.RandomState(info.id)
        if not hasattr(self, "missing"):
            self.missing = torch.Generator().manual_seed(info.id)
        return [
            (index, info.id, info.seed, info.num_workers),
            draw(),
            torch.rand(2, generator=self.torch_generator),
            [self.generators["random"].random(), self.generators["numpy"].random()],
            [self.unset.random(), self.late.rand(), torch.rand(1, generator=self.missing)],
        ]


def started(dataset: Any, *, quarantined: Set[int] = frozenset(), **more: Any) -> InlineBench:
    values = {
        "collate_fn": default_collate,
        "auto_collation": True,
        "worker_init_fn": None,
        "base_seed": SEED,
        "num_workers": WORKERS,
        "worker_threads": None,
    }
    return InlineBench(Recipe(dataset, **(values | more)), quarantined=quarantined)


def ticket(number: int, index: Any = None, *, worker: int | None = None) -> Ticket:
    index = list(range(4 * number, 4 * number + 4)) if index is None else index
    return Ticket(TicketNo(number), number, WorkerNo(number % WORKERS if worker is None else worker), index)


def by_torch(dataset: Any, **more: Any) -> list[Any]:
    """The same batches by torch's own workers, with the same seed."""

    class Fixed(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            state = torch.get_rng_state()
            torch.manual_seed(0)
            iterator = super()._get_iterator()
            torch.set_rng_state(state)
            return iterator

    return list(Fixed(dataset, batch_size=4, num_workers=WORKERS, **more))


def seed_of_torch() -> int:
    """What torch's loader draws as its seed after `torch.manual_seed(0)`."""
    generator = torch.Generator().manual_seed(0)
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    else:
        assert one == other


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_batches_are_those_of_torchs_workers_bit_for_bit() -> None:
    expected = by_torch(Drawing())
    bench = started(Drawing(), base_seed=seed_of_torch())
    assert_same([bench.make(ticket(number))() for number in range(BATCHES)], expected)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_it_makes_no_difference_which_worker_comes_first() -> None:
    expected = by_torch(Drawing())
    bench = started(Drawing(), base_seed=seed_of_torch())
    order = sorted(range(BATCHES), key=lambda number: -(number % WORKERS))
    made = {number: bench.make(ticket(number))() for number in order}
    assert_same([made[number] for number in range(BATCHES)], expected)


def test_nothing_of_a_worker_stays_in_the_trainer() -> None:
    dataset = Drawing()
    before, threads = (
        (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()),
        torch.get_num_threads(),
    )
    held = dataset.torch_generator.get_state(), dataset.generators["random"].getstate()
    bench = started(dataset, worker_init_fn=lambda _: random.seed(5))
    bench.make(ticket(0))()
    assert get_worker_info() is None
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]
    assert torch.equal(dataset.torch_generator.get_state(), held[0])
    assert dataset.generators["random"].getstate() == held[1]
    assert (dataset.unset, dataset.late, hasattr(dataset, "missing")) == (None, None, False)
    assert torch.get_num_threads() == threads
    assert torch_collate.default_collate_fn_map[torch.Tensor] is torch_collate.collate_tensor_fn


def test_worker_init_fn_is_called_once_for_each_worker_as_that_worker() -> None:
    called = []

    def note(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        called.append((worker, info.id, info.seed, random.random()))

    bench = started(Drawing(), worker_init_fn=note)
    bench.make(ticket(0))()
    bench.make(ticket(3))()
    assert called == [(n, n, SEED + n, random.Random(SEED + n).random()) for n in range(WORKERS)]


def test_an_error_of_worker_init_fn_is_raised_for_every_ticket_of_that_worker() -> None:
    def refuse(worker: int) -> None:
        if worker == 1:
            raise KeyError("no such shard")

    bench = started([torch.zeros(1)] * 8, worker_init_fn=refuse)
    bench.make(ticket(0, [0]))()
    for number in (1, 4):
        with pytest.raises(Refused) as refused:
            bench.make(ticket(number, [0]))()
        assert type(refused.value.error) is KeyError
        assert "Caught KeyError in DataLoader worker process 1." in str(refused.value.error)


class Failing(Dataset[Any]):
    """Some samples fail, always or once."""

    def __init__(self) -> None:
        self.fails = {5: 99, 6: 1}

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        drawn = torch.rand(1)
        if self.fails.get(index, 0):
            self.fails[index] -= 1
            raise ValueError(f"no {index}")
        return torch.cat([torch.tensor([float(index)]), drawn])


def test_an_error_has_torchs_text_and_its_position_and_the_next_batch_comes() -> None:
    bench = started(Failing())
    with pytest.raises(Refused) as refused:
        bench.make(ticket(1))()
    assert refused.value.position == 1
    assert type(refused.value.error) is ValueError
    assert str(refused.value.error).startswith("Caught ValueError in DataLoader worker process 1.\nOriginal Traceback")
    assert bench.make(ticket(2))()[:, 0].tolist() == [8, 9, 10, 11]


def test_policies_apply() -> None:
    bench = started(Failing(), policy=Policy(retries=1, then="skip", backoff_s=0.0))
    assert bench.make(ticket(1))()[:, 0].tolist() == [4, 6, 7]
    kinds = [(mishap.kind, mishap.sample) for mishap in bench.take_mishaps(WorkerNo(1))]  # in the order of samples
    assert kinds == [("retried", "5"), ("skipped", "5"), ("retried", "6")]
    with pytest.raises(NothingLeft):
        bench.make(ticket(4, [5]))()


def test_a_sample_in_quarantine_is_not_fetched() -> None:
    bench = started(Failing(), quarantined={4}, policy=Policy(then="skip"))
    assert bench.make(ticket(1, [4, 7]))()[:, 0].tolist() == [7]
    assert [mishap.sample for mishap in bench.take_mishaps(WorkerNo(1))] == ["4"]


def test_batches_are_in_ordinary_memory() -> None:
    bench = started([torch.zeros(1000)] * 8)
    assert not bench.make(ticket(0, [0, 1]))().is_shared()


def test_a_custom_collate_function_that_calls_torchs_gets_ordinary_memory_too() -> None:
    bench = started([torch.zeros(1000)] * 8, collate_fn=lambda samples: default_collate([*samples]))
    assert not bench.make(ticket(0, [0, 1]))().is_shared()


class Interrupting(Drawing):
    """Something happens in the middle of a batch, once."""

    def __init__(self, happen: Callable[[], None]) -> None:
        super().__init__()
        self.happen: Callable[[], None] | None = happen

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        if index == 14 and self.happen is not None:
            happen, self.happen = self.happen, None
            happen()
        return sample


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeoutError])
def test_after_an_interruption_the_same_batch_comes_again(kind: type[BaseException]) -> None:
    def on_alarm(*_: object) -> None:
        raise kind

    calm = started(Interrupting(lambda: None))
    expected = [calm.make(ticket(number))() for number in range(BATCHES)]
    bench = started(Interrupting(lambda: signal.raise_signal(signal.SIGALRM)))
    got = []
    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        for number in range(BATCHES):
            state = torch.get_rng_state()
            try:
                got.append(bench.make(ticket(number))())
            except kind:
                assert number == 3
                assert torch.equal(torch.get_rng_state(), state)
                assert get_worker_info() is None
                got.append(bench.make(ticket(number))())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert_same(got, expected)


def test_it_goes_on_from_a_snapshot_by_replay() -> None:
    calm, lost, successor = started(Drawing()), started(Drawing()), started(Drawing())
    expected = [calm.make(ticket(number))() for number in (0, 3, 6)]
    lost.make(ticket(0))()
    snapshot = lost.parts[0].board.latest()
    assert snapshot is not None and snapshot.ticket == 0
    successor.resume(WorkerNo(0), snapshot.state)
    successor.replay(ticket(0))
    successor.replay(ticket(3))
    assert_same(successor.make(ticket(6))(), expected[2])


class Stream(IterableDataset[Any]):
    """Each worker reads its share, and knows how far it is."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        self.read = 0
        for item in range(info.id, 12, info.num_workers):
            self.read += 1
            yield torch.tensor([item, self.read]), torch.rand(1)


def read_all(bench: InlineBench, *, first: int = 0) -> list[Any]:
    batches, number, ended = [], first, 0
    while ended < WORKERS:
        try:
            batches.append(bench.make(ticket(number, range(2)))())
        except EndOfStream:
            ended += 1
        number += 1
    return batches


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_each_worker_number_reads_a_stream_of_its_own() -> None:
    torch.manual_seed(0)
    expected = list(DataLoader(Stream(), batch_size=2, num_workers=WORKERS))
    bench = started(Stream(), base_seed=seed_of_torch(), is_stream=True)
    assert_same(read_all(bench), expected)


def test_a_stream_is_read_again_in_the_next_pass() -> None:
    bench = started(Stream(), is_stream=True)
    once = [batch[0].tolist() for batch in read_all(bench)]
    for worker in range(WORKERS):
        bench.begin_pass(Begin(TicketNo(99), None), WorkerNo(worker))
    assert [batch[0].tolist() for batch in read_all(bench, first=99)] == once


def test_a_stream_that_does_not_ask_is_shared_out_if_the_user_wants_that() -> None:
    class Unaware(IterableDataset[Any]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(12))

    code = get_worker_info.__code__
    bench = started(Unaware(), is_stream=True, fixes=frozenset({"shard"}))
    assert sorted(item for batch in read_all(bench) for item in batch.tolist()) == list(range(12))
    assert get_worker_info.__code__ is code


def test_a_stream_that_cannot_be_copied_is_refused_with_the_reason() -> None:
    class Uncopied(Stream):
        def __reduce_ex__(self, _: Any) -> Any:
            raise TypeError("one of a kind")

    with pytest.raises(CannotCross, match="one of a kind"):
        started(Uncopied(), is_stream=True)


def test_a_generator_without_a_state_is_left_alone() -> None:
    class Safe(Drawing):
        def __init__(self) -> None:
            super().__init__()
            self.system = random.SystemRandom()

    bench = started(Safe())
    assert len(bench.make(ticket(0))()) == 5
