"""Whatever the structure, and whatever came before: what torch delivers, ours delivers, aliases and all."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from drop_in.harness import TORCH, Way, tidy_up, torch_may_fork
from drop_in.kinds import as_it_is
from drop_in.portrait import assert_same_portrait, portrait
from drop_in.recipes import Kitchen, Recipe, recipes


class Menu:
    """What is asked for in the next epoch: workers stay, so that an epoch costs next to nothing."""

    def __init__(self) -> None:
        self.recipes: list[Recipe] = []

    def __iter__(self) -> Iterator[Recipe]:
        return iter(self.recipes)

    def __len__(self) -> int:
        return len(self.recipes)


@contextmanager
def loader_with(way: Way, menu: Menu, *, workers: int) -> Iterator[Any]:
    options = {"batch_size": None, "collate_fn": as_it_is, "num_workers": workers, "persistent_workers": True}
    loader = way.make(Kitchen(), sampler=menu, **options)
    try:
        yield loader
    finally:
        if loader._iterator is not None:
            loader._iterator._shutdown_workers()


def test_any_sequence_of_batches_arrives_as_torch_delivers_it(ours: Way) -> None:
    menu = Menu()
    with (
        torch_may_fork(),
        loader_with(TORCH, menu, workers=2) as torchs,
        loader_with(ours, menu, workers=1) as one_worker,
        loader_with(ours, menu, workers=2) as two_workers,
    ):

        @settings(deadline=None, max_examples=30)
        @given(st.lists(recipes(), min_size=1, max_size=5))
        def check(asked: list[Recipe]) -> None:
            menu.recipes = [*asked, asked[0]]
            expected = [portrait(batch) for batch in torchs]
            for loader in (one_worker, two_workers):
                for number, batch in enumerate(loader):
                    assert_same_portrait(expected[number], portrait(batch))

        check()
    tidy_up()
