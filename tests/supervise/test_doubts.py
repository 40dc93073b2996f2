"""What is said about results that are silently wrong."""

import pytest

from antifreeze.engine.arena.board import Noticed
from antifreeze.engine.supervise.doubts import doubts_about


@pytest.mark.parametrize(
    ("holder", "words"),
    [(0, "the dataset holds a random generator"), (1, "collate_fn holds a random generator"), (2, "a module has")],
)
def test_a_copied_generator_is_said_to_be_held_by_what_holds_it(holder: int, words: str) -> None:
    noticed = [Noticed(has_asked=False, first_items=0, drawn=7, holder=holder) for _ in range(2)]
    (doubt,) = doubts_about(noticed, is_stream=False, fixes=frozenset())
    assert doubt.startswith("AF501")
    assert words in doubt
