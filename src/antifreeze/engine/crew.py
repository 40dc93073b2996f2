"""The parts that an epoch works with, made for each other and put together."""

from __future__ import annotations

from typing import NamedTuple

from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.chronicle import Chronicle
from antifreeze.engine.flow.delivery import Delivery
from antifreeze.engine.marks import Marks
from antifreeze.engine.misgivings import Misgivings
from antifreeze.engine.orders import Orders
from antifreeze.engine.outcomes import Outcome, Outcomes
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.succession import Succession
from antifreeze.engine.supervise.recovery import Recovery
from antifreeze.engine.supervise.watchdog import Watchdog
from antifreeze.engine.supervisor import Supervisor
from antifreeze.engine.witness import Witness
from antifreeze.observe.accounts import Account
from antifreeze.options import Options


class Crew(NamedTuple):
    """Who does what between the plan and the user."""

    orders: Orders
    delivery: Delivery[Outcome]
    outcomes: Outcomes
    succession: Succession
    supervisor: Supervisor
    chronicle: Chronicle
    misgivings: Misgivings


def assemble(
    pool: Pool,
    arena: Arena,
    *,
    options: Options,
    account: Account,
    witness: Witness,
    in_order: bool,
    is_stream: bool,
    marks: Marks | None,
) -> Crew:
    """The parts for this pool of workers."""
    workers = len(pool.workers)
    watchdog = Watchdog(
        stall_after_s=options.stall_after_s, one_blocked_s=options.one_blocked_s, all_blocked_s=options.all_blocked_s
    )
    chronicle = Chronicle(account.ledger, watchdog, witness, workers=workers)
    orders = Orders(pool, arena, marks)
    orders.quarantined = account.quarantined
    delivery: Delivery[Outcome] = Delivery(in_order=in_order)
    succession = Succession(orders, delivery, chronicle, is_stream=is_stream, replays=options.replay)
    supervisor = Supervisor(
        pool,
        orders,
        delivery,
        succession,
        recovery=Recovery(workers=workers),
        watchdog=watchdog,
        witness=witness,
        chronicle=chronicle,
        # A stream cannot be read by two at once, and nothing can be left out of it before it has come.
        hedges=options.hedge and not is_stream,
        quarantines=options.policy.then != "raise" and not is_stream,
        quarantines_early=options.sample_timeout_s is None,  # who says how long is waited for gets that
    )
    misgivings = Misgivings(
        pool.workers, chronicle, first_items=succession.first_items, is_stream=is_stream, fixes=options.fix
    )
    outcomes = Outcomes(pool.workers, arena, chronicle)
    return Crew(orders, delivery, outcomes, succession, supervisor, chronicle, misgivings)
