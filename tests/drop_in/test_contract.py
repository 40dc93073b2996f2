"""What clients of a loader touch apart from its batches: constructor, attributes, class, iterator."""

import copy
import gc
import inspect
import os
import pickle
import signal
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from drop_in.datasets import Backwards, Numbers, PlainBatches
from drop_in.harness import SELFTEST, Maker, TorchLoader, Way, assert_same, our_class, our_way, outcome
from leftovers import wait_until


class Endless(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(())


MISTAKES: dict[str, dict[str, Any]] = {
    "negative workers": {"num_workers": -1},
    "negative timeout": {"timeout": -1},
    "prefetch without workers": {"num_workers": 0, "prefetch_factor": 3},
    "negative prefetch": {"num_workers": 1, "prefetch_factor": -1},
    "persistence without workers": {"num_workers": 0, "persistent_workers": True},
    "sampler and shuffle": {"sampler": [1], "shuffle": True},
    "batch_sampler and batch_size": {"batch_sampler": [[1]], "batch_size": 3},
    "batch_sampler and shuffle": {"batch_sampler": [[1]], "shuffle": True},
    "batch_sampler and drop_last": {"batch_sampler": [[1]], "drop_last": True},
    "drop_last without batches": {"batch_size": None, "drop_last": True},
    "context without workers": {"num_workers": 0, "multiprocessing_context": "fork"},
    "unknown start method": {"num_workers": 1, "multiprocessing_context": "telepathy"},
    "context of the wrong type": {"num_workers": 1, "multiprocessing_context": 3},
    "unknown option": {"number_of_workers": 2},
    "batch_size 0": {"batch_size": 0},
    "empty dataset, shuffled": {"dataset": [], "shuffle": True},
    "sampler for an iterable dataset": {"dataset": Endless(), "sampler": [1]},
    "shuffle for an iterable dataset": {"dataset": Endless(), "shuffle": True},
}


@pytest.mark.parametrize("options", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_in_the_arguments_is_torchs_error(options: dict[str, Any]) -> None:
    options = {"dataset": Numbers(4), **options}
    seen = [outcome(lambda cls=cls: str(type(cls(**options)))) for cls in (TorchLoader, our_class())]
    assert seen[1][0] == seen[0][0]
    assert seen[0][0] == "value" or seen[1] == seen[0]


def test_the_signature_is_torchs_and_ours_is_keyword_only_after_it() -> None:
    theirs = list(inspect.signature(TorchLoader.__init__).parameters.values())
    ours = [p for p in inspect.signature(our_class().__init__).parameters.values() if p.kind is not p.VAR_KEYWORD]

    def essence(parameter: inspect.Parameter) -> tuple[Any, ...]:
        return parameter.name, parameter.kind, parameter.default

    assert [essence(p) for p in ours[: len(theirs)]] == [essence(p) for p in theirs]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in ours[len(theirs) :])


def test_the_class_owns_its_constructor_is_generic_and_importable(not_for_torch: None) -> None:
    cls = our_class()
    assert "__init__" in vars(cls)
    assert issubclass(cls, TorchLoader)
    assert cls.__name__ == "DataLoader"
    assert cls[int](Numbers(2)).batch_size == 1
    assert pickle.loads(pickle.dumps(cls)) is cls
    assert not hasattr(cls, "state_dict")


def test_no_public_attribute_is_there_that_the_constructor_does_not_take() -> None:
    cls = our_class()
    loader = cls(Numbers(4), num_workers=1)
    parameters = inspect.signature(cls.__init__).parameters
    assert {name for name in vars(loader) if not name.startswith("_")} <= set(parameters)


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_frozen_attributes_are_frozen_as_torchs_are(name: str) -> None:
    seen = []
    for cls in (TorchLoader, our_class()):
        loader = cls(Numbers(4))
        seen.append(outcome(lambda loader=loader: setattr(loader, name, None)))
    assert seen[0][1][0] is ValueError
    assert seen[1] == seen[0]


LENGTHS: dict[str, dict[str, Any]] = {
    "sequential": {"batch_size": 4},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "no batches": {"batch_size": None},
    "sampler": {"sampler": Backwards(3), "batch_size": 2},
    "batch_sampler": {"batch_sampler": PlainBatches([[1], [2, 3]])},
}


@pytest.mark.long(but=2)
@pytest.mark.parametrize("options", LENGTHS.values(), ids=LENGTHS.keys())
def test_length_and_attributes_read_as_torchs(options: dict[str, Any]) -> None:
    def case(make: Maker) -> Any:
        loader = make(Numbers(10), **options)
        names = ("batch_size", "drop_last", "num_workers", "prefetch_factor", "timeout", "pin_memory", "_iterator")
        attributes = {name: getattr(loader, name) for name in (*names, "_auto_collation", "in_order")}
        return len(loader), len(iter(loader)), attributes, type(loader.sampler), type(loader.batch_sampler)

    assert_same(our_way("grown"), case)


@pytest.mark.parametrize("workers", [0, 2])
def test_numbers_read_back_as_plain_numbers(workers: int) -> None:
    """accelerate gives what it reads to the constructor of another loader."""

    def seen(cls: type[Any]) -> Any:
        loader = cls(Numbers(4), num_workers=workers)
        return {name: getattr(loader, name) for name in ("num_workers", "prefetch_factor", "batch_size", "timeout")}

    theirs, mine = seen(TorchLoader), seen(our_class())
    assert mine == theirs
    assert {name: type(value) for name, value in mine.items()} == {name: type(value) for name, value in theirs.items()}
    assert (mine["prefetch_factor"] is None) == (workers == 0)


@pytest.mark.filterwarnings("default:This DataLoader will create")
def test_too_many_workers_are_warned_of_in_torchs_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    said = []
    for cls in (TorchLoader, our_class()):
        with pytest.warns(UserWarning, match="excessive worker creation might get DataLoader running slow") as warned:
            cls(Numbers(4), num_workers=3)
        said.append([str(warning.message) for warning in warned])
    assert said[0] == said[1]
    assert len(said[1]) == 1


def test_contexts_read_back_as_contexts() -> None:
    for name in ("fork", "spawn", "forkserver"):
        loader = our_class()(Numbers(2), num_workers=1, multiprocessing_context=name)
        assert loader.multiprocessing_context.get_start_method() == name
    assert our_class()(Numbers(2), num_workers=1).multiprocessing_context is None


def test_the_iterator_is_of_torchs_classes(ours: Way) -> None:
    batches = iter(ours.make(Numbers(4)))
    assert isinstance(batches, _MultiProcessingDataLoaderIter)
    assert isinstance(batches, _BaseDataLoaderIter)
    assert isinstance(iter(ours.make(Numbers(4), num_workers=0)), _SingleProcessDataLoaderIter)


def test_an_iterator_cannot_be_pickled(ours: Way) -> None:
    batches = iter(ours.make(Numbers(4)))
    with pytest.raises(NotImplementedError):
        pickle.dumps(batches)


def test_the_kept_iterator_is_the_persistent_one(ours: Way) -> None:
    loader = ours.make(Numbers(4), persistent_workers=True)
    assert loader._iterator is None
    batches = iter(loader)
    assert loader._iterator is batches
    workers = batches._workers
    list(batches)
    assert all(worker.is_alive() for worker in workers)
    loader._iterator = None
    del batches
    gc.collect()
    assert wait_until(lambda: not any(worker.is_alive() for worker in workers), 2)
    assert [int(batch) for batch in loader] == [0, 1, 2, 3]


def test_a_loader_without_persistent_workers_keeps_no_iterator(ours: Way) -> None:
    loader = ours.make(Numbers(4))
    batches = iter(loader)
    next(batches)
    assert loader._iterator is None


def test_workers_can_be_shut_down_by_hand_and_twice(ours: Way) -> None:
    batches = iter(ours.make(Numbers(4)))
    workers = batches._workers
    batches._shutdown_workers()
    batches._shutdown_workers()
    batches.__del__()
    assert wait_until(lambda: not any(worker.is_alive() for worker in workers), 2)


def test_a_loader_rebuilt_from_its_attributes_gives_the_same_batches(ours: Way) -> None:
    """As Lightning does when it puts in a sampler of its own."""

    def case(make: Maker) -> Any:
        loader = make(Numbers(10), batch_size=3, shuffle=True, prefetch_factor=3, persistent_workers=False)
        parameters = set(inspect.signature(type(loader).__init__).parameters) - {"self"}
        options = {name: getattr(loader, name) for name in parameters if hasattr(loader, name)}
        for name in ("batch_size", "sampler", "drop_last"):
            del options[name]
        rebuilt = type(loader)(**options)
        return list(rebuilt), rebuilt.prefetch_factor, type(rebuilt) is type(loader)

    assert_same(ours, case)


def test_a_loader_rebuilt_from_all_its_public_attributes_gives_the_same_batches(ours: Way) -> None:
    """As ignite does: every public entry of its `__dict__` goes to the constructor."""

    def case(make: Maker) -> Any:
        loader = make(Numbers(10), batch_size=3)
        options = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
        for name in ("batch_size", "sampler", "drop_last"):
            del options[name]
        return list(type(loader)(**options))

    assert_same(ours, case)


def test_a_pickled_loader_gives_the_same_batches(ours: Way) -> None:
    def case(make: Maker) -> Any:
        generator = torch.Generator().manual_seed(3)
        loader = make(Numbers(10), batch_size=3, shuffle=True, generator=generator)
        clone = pickle.loads(pickle.dumps(loader))
        return type(clone) is type(loader), list(clone), list(loader)

    assert_same(ours, case)


def test_a_loader_that_was_iterated_can_still_be_pickled_and_copied(ours: Way) -> None:
    def case(make: Maker) -> Any:
        loader = make(Numbers(6), batch_size=2)
        list(loader)
        return list(pickle.loads(pickle.dumps(loader))), list(copy.copy(loader))

    assert_same(ours, case)


def test_a_loader_that_keeps_its_workers_is_as_hard_to_pickle_as_torchs(ours: Way) -> None:
    def case(make: Maker) -> Any:
        loader = make(Numbers(4), persistent_workers=True)
        list(loader)
        _, (refusal, _, _) = outcome(lambda: pickle.dumps(loader))
        loader._iterator = None
        return refusal, list(pickle.loads(pickle.dumps(loader)))

    assert assert_same(ours, case)[0] is NotImplementedError


@pytest.mark.long(but=1)
def test_a_loop_inside_a_loop_over_the_same_loader_is_another_pass(ours: Way) -> None:
    def case(make: Maker) -> Any:
        loader = make(Numbers(3))
        return [(int(outer), [int(inner) for inner in loader]) for outer in loader]

    assert_same(ours, case)


def test_workers_answer_as_processes_after_their_iterator_is_gone(ours: Way) -> None:
    batches = iter(ours.make(Numbers(8)))
    next(batches)
    workers = batches._workers
    del batches
    gc.collect()
    for worker in workers:
        worker.terminate()  # as ultralytics does, of a worker that may be gone
        worker.join(5)
    assert [worker.is_alive() for worker in workers] == [False, False]
    assert all(isinstance(worker.pid, int) and worker.exitcode is not None for worker in workers)


def test_no_signal_of_the_program_is_handled_by_us(ours: Way) -> None:
    """Lightning under Slurm uses SIGUSR1, and torch SIGCHLD."""
    names = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGCHLD")

    def handlers() -> list[Any]:
        return [signal.getsignal(getattr(signal, name)) for name in names]

    before = handlers()
    batches = iter(ours.make(Numbers(4)))
    next(batches)
    assert SELFTEST or handlers() == before  # torch has one of its own for SIGCHLD
    list(batches)


class Subclass(our_class()):  # type: ignore[misc]
    """As users and libraries write them."""

    def __init__(self, dataset: Any, extra: int = 0, **options: Any) -> None:
        self.extra = extra
        super().__init__(dataset, **options)

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch + self.extra


def test_a_subclass_of_our_class_works(ours: Way) -> None:
    loader = Subclass(Numbers(4), extra=5, num_workers=2, multiprocessing_context=ours.context)
    assert [int(batch) for batch in loader] == [5, 6, 7, 8]


def test_a_subclass_may_wrap_the_factory_of_iterators(ours: Way) -> None:
    class Wrapping(our_class()):  # type: ignore[misc]
        def _get_iterator(self) -> Any:
            return map(int, super()._get_iterator())

    assert list(Wrapping(Numbers(4), num_workers=2, multiprocessing_context=ours.context)) == [0, 1, 2, 3]


def test_a_subclass_may_keep_its_iterator_for_ever(ours: Way) -> None:
    """As timm and ultralytics do: an endless batch sampler behind one iterator."""

    class Repeating:
        def __init__(self, batches: Any) -> None:
            self.batches = batches

        def __iter__(self) -> Any:
            while True:
                yield from self.batches

    class Infinite(our_class()):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            object.__setattr__(self, "batch_sampler", Repeating(self.batch_sampler))
            self.iterator = super().__iter__()

        def __iter__(self) -> Any:
            for _ in range(3):
                yield next(self.iterator)

    loader = Infinite(Numbers(4), num_workers=2, multiprocessing_context=ours.context)
    assert [[int(batch) for batch in loader] for _ in range(3)] == [[0, 1, 2], [3, 0, 1], [2, 3, 0]]


def test_nothing_is_started_by_the_constructor(ours: Way) -> None:
    loader = ours.make(Numbers(4), persistent_workers=True)
    assert loader._iterator is None
