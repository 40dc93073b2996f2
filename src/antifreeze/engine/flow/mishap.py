"""A sample has failed: is it fetched again, and when? Pure."""

from __future__ import annotations

from antifreeze.policy import Policy

# No failure is given longer than this to pass.
LONGEST_WAIT_S = 30.0


def wait_before_next(policy: Policy, *, failed: int, is_stop_iteration: bool) -> float | None:
    """Seconds until a sample that has failed so often is fetched again; None: it is not.

    StopIteration is tried twice whatever the policy: it says less about a sample than any other exception does.
    """
    if failed <= policy.retries:
        return min(policy.backoff_s * 2.0 ** min(failed - 1, 64), LONGEST_WAIT_S)
    return 0.0 if is_stop_iteration and failed == 1 else None
