"""The clean stem against torch's own spawn: one case, for a spawned worker of torch takes seconds to start.

The rest of the suite compares it with torch's fork, which gives the same batches for datasets that depend on nothing but
index and generators. The reference runs in a process of its own: spawn leaves a resource tracker behind.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drop_in.datasets import Augmented, Records
from drop_in.harness import Maker, assert_identical, observe, our_way
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


@pytest.mark.deadline(60)
def test_the_clean_stem_gives_what_torch_gives_with_spawn(run_script: Callable[..., Ended], tmp_path: Path) -> None:
    target = tmp_path / "reference.pickle"
    run_script(REFERENCE, str(target), timeout=50).check()
    expected = pickle.loads(target.read_bytes())
    assert_identical(expected, observe(our_way("clean"), two_epochs))
