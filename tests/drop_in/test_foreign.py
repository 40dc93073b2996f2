"""What other libraries bring along: iterators, contexts and loaders of their own."""

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.multiprocessing
import torch.utils.data.dataloader as torch_module
from torch.utils.data import IterableDataset

from drop_in.datasets import Augmented, Numbers, as_is
from drop_in.harness import SELFTEST, Maker, TorchLoader, Way, assert_identical, assert_same, our_class, outcome

Usage = Callable[[], list[dict[str, Any]]]

ours_only = pytest.mark.skipif(bool(SELFTEST), reason="about our engine")
THEIRS = torch_module._MultiProcessingDataLoaderIter


class ThreadProcess(threading.Thread):
    """As MONAI's: workers are threads that look like processes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.exitcode = None
        self.pid = id(self)

    def run(self) -> None:
        try:
            super().run()
        finally:
            torch.utils.data._utils.worker._worker_info = None

    def terminate(self) -> None:
        pass


class Context:
    """A multiprocessing context that somebody else wrote."""

    def __getattr__(self, name: str) -> Any:
        return getattr(multiprocessing, name)


def context_of_threads() -> Any:
    context = Context()
    context.Process = ThreadProcess
    return context


class FakeLoader:
    """As fastai's: no loader by its class, and with no more than torch's iterator reads."""

    _IterableDataset_len_called, _auto_collation, drop_last, in_order = None, False, False, True
    generator, prefetch_factor, timeout, pin_memory, pin_memory_device = None, 2, 0, False, ""
    persistent_workers, num_workers, worker_init_fn = False, 2, None
    _dataset_kind = torch_module._DatasetKind.Iterable

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._index_sampler = torch_module._InfiniteConstantSampler()

    def collate_fn(self, batch: Any) -> Any:
        return batch

    @property
    def multiprocessing_context(self) -> Any:
        return multiprocessing


class Counted(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        return ((info.id, place, torch.rand(1)) for place in range(3 + info.id))


@ours_only
@pytest.mark.parametrize("module", [multiprocessing, torch.multiprocessing], ids=lambda module: module.__name__)
def test_the_module_itself_is_the_default_context(module: Any, usage: Usage) -> None:
    loader = our_class()(Numbers(4), num_workers=2)
    loader._DataLoader__multiprocessing_context = module  # past torch's check, as a loader of another class would
    assert [int(batch) for batch in loader] == [0, 1, 2, 3]
    assert (usage()[-1]["engine"], usage()[-1]["stem"]) == ("antifreeze", "grown")


@ours_only
def test_a_loader_that_is_none_by_its_class_is_carried(usage: Usage) -> None:
    from antifreeze.iterator import Iterator as Ours

    seen = []
    for iterator in (THEIRS, Ours):
        torch.manual_seed(7)
        seen.append(list(iterator(FakeLoader(Counted()))))  # type: ignore[arg-type]
    assert_identical(seen[0], seen[1])
    assert len(seen[1]) == 7
    assert usage()[-1]["engine"] == "antifreeze"


@ours_only
@pytest.mark.fallback
def test_an_iterator_class_that_is_derived_from_ours_runs_torchs_protocol(
    usage: Usage, capfd: pytest.CaptureFixture[str]
) -> None:
    """As litdata's, which writes into torch's queues itself, under `antifreeze run`."""
    from antifreeze.iterator import Iterator as Ours

    class Theirs(Ours):
        def _try_put_index(self) -> None:
            self.asked = getattr(self, "asked", 0) + 1
            super()._try_put_index()  # type: ignore[no-untyped-call]

    batches = Theirs(TorchLoader(Numbers(6), num_workers=2))
    assert [int(batch) for batch in batches] == list(range(6))
    assert batches.asked >= 6
    assert all(isinstance(worker, multiprocessing.process.BaseProcess) for worker in batches._workers)
    assert usage()[-1]["engine"] == "torch"
    assert "brings an iterator of its own" in capfd.readouterr().err


@ours_only
@pytest.mark.fallback
def test_workers_that_are_threads_run_torchs_protocol(usage: Usage, capfd: pytest.CaptureFixture[str]) -> None:
    loader = our_class()(Numbers(6), batch_size=None, num_workers=2, collate_fn=as_is)
    loader._DataLoader__multiprocessing_context = context_of_threads()
    assert list(loader) == list(range(6))
    assert usage()[-1] | {"pid": 0} == {"engine": "torch", "stem": None, "pid": 0} | {
        "reason": "multiprocessing_context is a Context"
    }
    assert "multiprocessing_context is a Context" in capfd.readouterr().err


@ours_only
def test_require_turns_a_fallback_into_an_error_that_names_its_reason() -> None:
    from antifreeze.errors import Fallback

    loader = our_class()(Numbers(6), num_workers=2)
    loader._DataLoader__multiprocessing_context = context_of_threads()
    with pytest.raises(Fallback, match="multiprocessing_context is a Context"):
        iter(loader)


def test_an_iterator_may_be_reset_by_hand(ours: Way) -> None:
    """As PyTorch Geometric does with iterators that it keeps."""

    def case(make: Maker) -> Any:
        loader = make(Augmented(7), batch_size=2, shuffle=True, persistent_workers=True)
        batches = iter(loader)
        seen = [list(batches)]
        batches._reset(loader)
        seen.append([next(batches)])
        batches._reset(loader, first_iter=False)
        return [*seen, list(batches)]

    assert_same(ours, case)


def test_the_worker_info_of_a_worker_may_be_replaced(ours: Way) -> None:
    """As datasets that pretend to be in another worker do."""

    class Pretending(Numbers):
        def __getitem__(self, index: int) -> Any:
            from torch.utils.data._utils import worker

            info = torch.utils.data.get_worker_info()
            worker._worker_info = None
            alone = torch.utils.data.get_worker_info()
            worker._worker_info = info
            return alone is None, torch.utils.data.get_worker_info().id

    def case(make: Maker) -> Any:
        return list(make(Pretending(4), batch_size=None))

    assert_same(ours, case)


def test_the_guard_of_the_constructor_may_be_opened_and_closed(ours: Way) -> None:
    """As timm does, to put another batch sampler in."""

    def case(make: Maker) -> Any:
        loader = make(Numbers(4))
        loader._DataLoader__initialized = False
        loader.batch_sampler = [[3], [1, 2]]
        loader._DataLoader__initialized = True
        _, (refusal, _, _) = outcome(lambda: setattr(loader, "batch_sampler", []))
        return list(loader), refusal

    assert assert_same(ours, case)[1] is ValueError


@ours_only
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own
def test_torchdatas_loader_works_untouched_whatever_is_installed(usage: Usage) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    import antifreeze

    def passes() -> Any:
        torch.manual_seed(7)
        loader = stateful.StatefulDataLoader(Augmented(9), batch_size=2, shuffle=True, num_workers=2)
        batches = iter(loader)
        before = [next(batches), next(batches)]
        state = loader.state_dict()
        again = stateful.StatefulDataLoader(Augmented(9), batch_size=2, shuffle=True, num_workers=2)
        again.load_state_dict(state)
        return before, list(batches), len(list(again)), sorted(state)

    expected = passes()
    antifreeze.install()
    try:
        before = len(usage())
        assert_identical(expected, passes())
        assert len(usage()) == before
    finally:
        antifreeze.uninstall()
