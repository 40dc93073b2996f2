"""What is kept beside an object is found by identity, and goes with it."""

import gc

from antifreeze.observe.accounts import account_of
from antifreeze.observe.beside import Beside
from drop_in.harness import our_class


class Equal:  # noqa: PLW1641
    """Equal to all others, and without a hash."""

    def __eq__(self, other: object) -> bool:
        return True


def test_objects_that_are_equal_or_have_no_hash_have_values_of_their_own() -> None:
    beside: Beside[int] = Beside()
    one, other = Equal(), Equal()
    assert beside.keep(one, 1) == 1
    assert (beside.get(one), beside.get(other)) == (1, None)
    beside.keep(other, 2)
    beside.keep(one, 3)
    assert (beside.get(one), beside.get(other)) == (3, 2)
    assert list(map(id, beside.objects())) == [id(one), id(other)]


def test_a_value_goes_with_its_object() -> None:
    beside: Beside[int] = Beside()
    one = Equal()
    beside.keep(one, 1)
    del one
    gc.collect()
    assert not beside._kept


def test_of_an_object_without_weak_references_nothing_is_kept() -> None:
    beside: Beside[int] = Beside()
    assert beside.keep(7, 1) == 1
    assert beside.get(7) is None and not beside._kept


def test_a_loader_without_a_hash_has_a_ledger_and_statistics() -> None:
    class Compared(our_class()):  # type: ignore[misc]  # noqa: PLW1641
        def __eq__(self, other: object) -> bool:
            return True

    one, other = Compared(range(4), num_workers=1), Compared(range(4))
    assert [int(batch) for batch in one] == [0, 1, 2, 3]
    assert one.statistics().batches == 4
    assert other.statistics().batches == 0
    assert account_of(one).ledger is one.ledger is not other.ledger
