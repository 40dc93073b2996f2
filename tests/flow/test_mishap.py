"""How often a failed sample is fetched again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antifreeze.engine.flow.mishap import LONGEST_WAIT_S, wait_before_next
from antifreeze.policy import Policy, Then

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
