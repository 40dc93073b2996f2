"""A loader of ours stays ours where a library builds one of torch's class from its pieces, and nobody else's changes."""

import gc
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset

import antifreeze
from antifreeze import DataLoader, adoption
from antifreeze.iterator import Iterator as OurIterator
from antifreeze.options import options_of
from user_scripts import Ended

TORCHS_FACTORY = getattr(TorchLoader._get_iterator, "__wrapped__", TorchLoader._get_iterator)


class Squares(Dataset[int]):
    def __init__(self, *, bad: int | None = None) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise ValueError(index)
        return index**2


class Incomparable(Squares):
    """As tables are: without a hash, and with an equality that is no yes or no."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("nobody asked")


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Shard(IterableDataset[int]):
    """As accelerate puts one around an iterable dataset when there are several processes."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[int]:
        return iter(self.dataset)


Shard.__module__ = "accelerate.data_loader"


def code_of(module: str) -> Callable[[Any], Any]:
    """A function of a library that asks a loader for its iterator."""
    namespace: dict[str, Any] = {"__name__": module}
    exec("def begin(loader): return iter(loader)", namespace)
    begin: Callable[[Any], Any] = namespace["begin"]
    return begin


by_accelerate = code_of("accelerate.data_loader")


def taken_apart(loader: Any, dataset: Any = None) -> Any:
    """A loader of torch's class from the pieces of another, as accelerate and Ray Train build it."""
    names = ("num_workers", "collate_fn", "timeout", "worker_init_fn", "batch_size")
    return TorchLoader(dataset or loader.dataset, **{name: getattr(loader, name) for name in names})


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    yield
    adoption.forget()
    assert TorchLoader._get_iterator is TORCHS_FACTORY


@pytest.mark.parametrize("module", ["accelerate.data_loader", "ray.train.torch.train_loop_utils"])
def test_what_a_library_builds_from_a_loader_of_ours_is_on_our_engine(module: str) -> None:
    heir = taken_apart(DataLoader(Squares(), num_workers=2))
    batches = code_of(module)(heir)
    assert type(heir) is TorchLoader and type(batches) is OurIterator
    assert [int(batch) for batch in batches] == [0, 1, 4, 9, 16, 25]


@pytest.mark.parametrize("module", ["__main__", "torch.utils.data", "accelerated.loops", ""])
def test_whoever_else_builds_a_loader_of_torchs_class_over_that_dataset_gets_torchs(module: str) -> None:
    batches = code_of(module)(taken_apart(DataLoader(Squares(), num_workers=1)))
    assert type(batches) is not OurIterator
    batches._shutdown_workers()


def test_a_dataset_that_no_loader_of_ours_has_stays_torchs() -> None:
    kept = DataLoader(Squares(), num_workers=1)
    batches = by_accelerate(taken_apart(kept, Squares()))
    assert type(batches) is not OurIterator
    batches._shutdown_workers()


def test_options_go_along_and_what_happens_is_told_to_the_loader_that_has_them(tmp_path: Path) -> None:
    ours = DataLoader(
        Squares(bad=2), num_workers=2, on_error="skip", max_lost=3, worker_threads=2, ledger_file=tmp_path / "ledger"
    )
    heir = taken_apart(ours)
    assert [int(batch) for batch in by_accelerate(heir)] == [0, 1, 9, 16, 25]
    assert options_of(heir) == options_of(ours)
    assert options_of(heir).worker_threads == 2
    assert [record.sample for record in ours.ledger if record.sample] == ["2"]
    assert "ValueError" in (tmp_path / "ledger").read_text()


def test_options_go_along_when_the_loader_itself_is_gone() -> None:
    heir = taken_apart(DataLoader(Squares(bad=2), num_workers=1, on_error="skip", max_lost=3))
    gc.collect()
    assert [int(batch) for batch in by_accelerate(heir)] == [0, 1, 9, 16, 25]


def test_the_options_of_the_last_loader_with_a_dataset_count() -> None:
    dataset = Squares(bad=2)
    loaders = [DataLoader(dataset, num_workers=1, on_error=word) for word in ("raise", "skip")]  # type: ignore[arg-type]
    heir = taken_apart(loaders[0])
    by_accelerate(heir)
    assert options_of(heir).policy.then == "skip"


def test_an_heir_shows_nothing_that_its_constructor_does_not_take_and_can_be_pickled() -> None:
    heir = taken_apart(DataLoader(Squares(bad=2), num_workers=1, on_error="skip"))
    public = {name for name in vars(heir) if not name.startswith("_")}
    by_accelerate(heir)
    assert {name for name in vars(heir) if not name.startswith("_")} == public
    assert options_of(pickle.loads(pickle.dumps(heir))) == options_of(heir)


def test_datasets_are_told_apart_by_who_they_are() -> None:
    assert type(by_accelerate(taken_apart(DataLoader(Incomparable(), num_workers=1)))) is OurIterator


def test_an_iterable_dataset_is_found_inside_what_accelerate_puts_around_it() -> None:
    ours = DataLoader(Stream(), num_workers=1)
    assert type(by_accelerate(taken_apart(ours, Shard(ours.dataset)))) is OurIterator


def test_a_dataset_goes_when_its_loaders_go() -> None:
    before = len(adoption._estates)
    loader = DataLoader(Squares(), num_workers=1)
    assert len(adoption._estates) == before + 1
    del loader
    gc.collect()
    assert len(adoption._estates) == before


def test_a_list_is_neither_kept_nor_an_error() -> None:
    before = len(adoption._estates)
    heir = taken_apart(DataLoader([1, 2], num_workers=1))  # type: ignore[arg-type]
    assert len(adoption._estates) == before
    batches = by_accelerate(heir)
    assert [int(batch) for batch in batches] == [1, 2]
    assert type(batches) is not OurIterator


@pytest.mark.fallback
def test_antifreeze_0_leaves_it_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    heir = taken_apart(DataLoader(Squares(), num_workers=1))
    monkeypatch.setenv("ANTIFREEZE", "0")
    batches = by_accelerate(heir)
    assert type(batches) is not OurIterator
    batches._shutdown_workers()


def test_uninstall_gives_torch_its_factory_back_and_the_next_loader_of_ours_takes_it_again() -> None:
    ours = DataLoader(Squares(), num_workers=1)
    assert TorchLoader._get_iterator is not TORCHS_FACTORY
    antifreeze.uninstall()
    assert TorchLoader._get_iterator is TORCHS_FACTORY
    assert type(iter(ours)) is OurIterator
    assert type(by_accelerate(taken_apart(DataLoader(Squares(), num_workers=1)))) is OurIterator


def test_a_factory_that_somebody_put_over_ours_stays_and_still_reaches_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    heir = taken_apart(DataLoader(Squares(), num_workers=1))
    beneath = TorchLoader._get_iterator

    def theirs_over_ours(self: Any) -> Any:
        return beneath(self)

    with monkeypatch.context() as patch:
        patch.setattr(TorchLoader, "_get_iterator", theirs_over_ours)
        antifreeze.uninstall()
        assert TorchLoader._get_iterator is theirs_over_ours
        batches = by_accelerate(heir)
        assert type(batches) is not OurIterator
        batches._shutdown_workers()


def test_without_workers_there_is_nothing_to_adopt() -> None:
    batches = by_accelerate(taken_apart(DataLoader(Squares())))
    assert torch.stack(list(batches)).flatten().tolist() == [0, 1, 4, 9, 16, 25]


def test_nothing_of_torchs_changes_before_a_loader_of_ours_is_built(run_script: Callable[..., Ended]) -> None:
    run_script("""
from torch.utils.data import DataLoader, TensorDataset
import torch
before = DataLoader._get_iterator
import antifreeze
antifreeze.DataLoader
assert DataLoader._get_iterator is before
antifreeze.DataLoader(TensorDataset(torch.zeros(3)))
assert DataLoader._get_iterator is not before
antifreeze.uninstall()
assert DataLoader._get_iterator is before
""").check()
