"""The clean stem against torch's own spawn: one case, for a spawned worker of torch takes seconds to start.

The rest of the suite compares it with torch's fork, which gives the same batches for datasets that depend on nothing but
index and generators. The reference runs in a process of its own: spawn leaves a resource tracker behind.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antifreeze.errors import CannotCross
from drop_in.datasets import Augmented, Numbers, Records
from drop_in.harness import SELFTEST, Maker, assert_identical, observe, our_way
from user_scripts import Ended

REFERENCE = f"""
import pickle, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from drop_in.harness import TidyTorchLoader, Way, observe, tidy_up
from drop_in.test_spawn_reference import two_epochs

if __name__ == "__main__":
    way = Way("torch spawn", TidyTorchLoader, "spawn")
    with open(sys.argv[1], "wb") as file:
        pickle.dump(observe(way, two_epochs), file)
    tidy_up()
"""


class Everything(Records):
    """Every kind of value, and random numbers beside it."""

    def __getitem__(self, index: int) -> Any:
        return {**super().__getitem__(index), "noise": Augmented.__getitem__(self, index)}  # type: ignore[arg-type]


def two_epochs(make: Maker) -> Any:
    loader = make(Everything(9), batch_size=2, shuffle=True, persistent_workers=True)
    return [list(loader) for _ in range(2)]


@pytest.mark.long
def test_the_clean_stem_gives_what_torch_gives_with_spawn(run_script: Callable[..., Ended], tmp_path: Path) -> None:
    target = tmp_path / "reference.pickle"
    run_script(REFERENCE, str(target)).check()
    expected = pickle.loads(target.read_bytes())
    assert_identical(expected, observe(our_way("clean"), two_epochs))


class Stubborn:
    def __reduce__(self) -> Any:
        raise TypeError("I stay here")


def setting_up(thing: Any) -> Any:
    return lambda worker: thing


@pytest.mark.skipif(bool(SELFTEST), reason="torch tells neither path nor place")
def test_what_cannot_cross_raises_at_iter_with_its_path_its_place_and_the_code() -> None:
    loader = our_way("clean").make(Numbers(4), worker_init_fn=setting_up([1, {"key": Stubborn()}]))
    with pytest.raises(CannotCross, match="AF301 cannot-cross: TypeError: I stay here") as caught:
        iter(loader)
    assert caught.value.what == "worker_init_fn.<thing>[1]['key'] cannot be sent to a worker"
    place = f"{Path(__file__).name}:{setting_up.__code__.co_firstlineno + 1}"
    assert f"used by setting_up.<locals>.<lambda> at {place}" in str(caught.value.where)
    assert caught.value.code == "AF301"


class Starving:
    def __reduce__(self) -> Any:
        raise MemoryError


@pytest.mark.skipif(bool(SELFTEST), reason="torch pickles in a process of its own making")
@pytest.mark.parametrize("name", ["dataset", "worker_init_fn"])
def test_a_lack_of_memory_is_not_taken_for_something_that_cannot_cross(name: str) -> None:
    thing = [Starving()]
    options = {"worker_init_fn": setting_up(thing)} if name == "worker_init_fn" else {}
    loader = our_way("clean").make(thing if name == "dataset" else [1], **options)
    with pytest.raises(MemoryError):
        iter(loader)
