"""The seed of a ticket."""

from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.plan.seeds import ticket_seed

SEEDS = st.integers(-(1 << 63), (1 << 63) - 1)


def test_a_seed_is_the_same_on_every_machine_and_in_every_version() -> None:
    seeds = [ticket_seed(0, 0), ticket_seed(0, 1), ticket_seed(-1, 2)]
    assert seeds == [3106722294404802908, 14745262712873648508, 11698814626717592259], (
        "runs that were begun with an older version would go on with other random numbers"
    )


@given(seed=SEEDS, batch=st.integers(0, 1 << 40))
def test_neighbours_have_nothing_in_common(seed: int, batch: int) -> None:
    own = ticket_seed(seed, batch)
    assert 0 <= own < 1 << 64
    for neighbour in (ticket_seed(seed, batch + 1), ticket_seed(seed ^ 1, batch)):
        assert 8 <= (own ^ neighbour).bit_count() <= 56  # of 64 bits; the chance of fewer or more is one in 10^10
