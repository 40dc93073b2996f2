"""How often a failed sample is fetched again, and how many may be lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.flow.mishap import ENOUGH_SAMPLES, LONGEST_WAIT_S, Losses, wait_before_next
from antifreeze.errors import SampleFailed
from antifreeze.settings import Policy, Then

POLICIES = st.builds(
    Policy,
    then=st.sampled_from(["raise", "skip", "replace"]),
    retries=st.integers(0, 10_000),
    backoff_s=st.floats(0, 1e6),
)


@given(policy=POLICIES, failed=st.integers(1, 20_000), is_stop_iteration=st.booleans())
def test_a_sample_is_fetched_again_as_often_as_the_policy_says_and_no_more(
    policy: Policy, failed: int, is_stop_iteration: bool
) -> None:
    wait_s = wait_before_next(policy, failed=failed, is_stop_iteration=is_stop_iteration)
    most = max(policy.retries, 1) if is_stop_iteration else policy.retries
    assert (wait_s is not None) == (failed <= most)
    if wait_s is not None:
        assert 0 <= wait_s <= LONGEST_WAIT_S


def test_waits_double_up_to_the_longest() -> None:
    policy = Policy("raise", 12, 0.1)
    waits = [wait_before_next(policy, failed=failed, is_stop_iteration=False) for failed in range(1, 13)]
    assert waits[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert waits[-3:] == [LONGEST_WAIT_S] * 3


@pytest.mark.parametrize("then", ["raise", "skip", "replace"])
def test_without_retries_only_stop_iteration_gets_a_second_chance_at_once(then: Then) -> None:
    policy = Policy(then)
    assert wait_before_next(policy, failed=1, is_stop_iteration=False) is None
    assert wait_before_next(policy, failed=1, is_stop_iteration=True) == 0
    assert wait_before_next(policy, failed=2, is_stop_iteration=True) is None


BATCHES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 20)), max_size=50)


@given(batches=BATCHES, most=st.integers(0, 100))
def test_a_count_is_exceeded_by_the_first_sample_beyond_it(batches: list[tuple[int, int]], most: int) -> None:
    losses = Losses(most)
    total = 0
    for delivered, lost in batches:
        losses.note(delivered=delivered, lost=lost)
        total += lost
        assert losses.judge() == (total > most)


@given(batches=BATCHES, share=st.floats(0.001, 1))
def test_a_share_is_not_judged_before_enough_samples_have_been_seen(
    batches: list[tuple[int, int]], share: float
) -> None:
    losses = Losses(share)
    for delivered, lost in batches:
        losses.note(delivered=delivered, lost=lost)
        seen = losses.delivered + losses.lost
        assert losses.judge() == (seen >= ENOUGH_SAMPLES and losses.lost > share * seen)
        assert losses.judge(at_end=True) == (losses.lost > share * seen)


def test_nobody_trains_on_one_percent_of_the_data_without_noticing() -> None:
    losses = Losses(0.5)
    for _ in range(9):
        losses.note(delivered=1, lost=99)
        assert not losses.judge()
    losses.note(delivered=1, lost=99)
    assert losses.judge()


def test_a_whole_share_allows_everything_and_no_count_allows_nothing() -> None:
    everything, nothing = Losses(1.0), Losses(0)
    for losses in (everything, nothing):
        losses.note(delivered=0, lost=5000)
    assert not everything.judge(at_end=True)
    assert nothing.judge()


def test_an_epoch_without_samples_has_lost_nothing() -> None:
    assert not Losses(0.1).judge(at_end=True)


def test_every_epoch_is_counted_by_itself() -> None:
    losses = Losses(5)
    losses.note(delivered=10, lost=5)
    losses.begin()
    losses.note(delivered=10, lost=5)
    assert not losses.judge()


@pytest.mark.parametrize("most", [3, 0.25])
def test_the_error_says_how_many_what_the_limit_is_and_what_the_last_one_was(most: int | float) -> None:
    losses = Losses(most)
    losses.note(delivered=6, lost=4)
    error = losses.error(last="sample 7: OSError: no such file")
    assert isinstance(error, SampleFailed)
    assert "4 of 10 samples" in error.what and f"max_lost={most}" in str(error)
    assert "sample 7: OSError" in (error.why or "") and error.try_
    assert losses.error().why is None
