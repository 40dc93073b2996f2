"""Whether a pass over the data has come to its end: pure."""

from __future__ import annotations

from typing import Any

from antifreeze.engine.flow.delivery import Delivery
from antifreeze.engine.plan.ticket import Plan


def what_is_missing(plan: Plan, delivery: Delivery[Any]) -> str | None:
    """What a pass that is about to end has not delivered, in words; None: it is whole."""
    if not plan.is_exhausted:
        return f"it ends after {plan.planned} batches, and the sampler has more"
    lacking = plan.planned - delivery.taken
    return f"{lacking} of the {plan.planned} batches that were planned have not been delivered" if lacking else None
