"""Starts the stem that has been chosen; what deviates from torch's own way is said and written down."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from multiprocessing import spawn
from typing import Any

from antifreeze.codes import named
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.backends.choice import Clean, Grown, Hazard, InProcess, choose
from antifreeze.engine.backends.grown import grow
from antifreeze.engine.backends.hazards.lost_threads import find_lost_thread
from antifreeze.engine.backends.hazards.quiet import taken
from antifreeze.engine.backends.hazards.search import find_hazards
from antifreeze.engine.worker.mends import Broken, unlock
from antifreeze.engine.worker.recipe import Identity, Recipe
from antifreeze.observe.ledger import Kind, Ledger
from antifreeze.observe.say import say_once


class OnlyInProcess(Exception):
    """No worker can load this dataset: it is loaded in the trainer, and this is why, in words."""


def start_stem(recipe: Recipe, start_method: str, ledger: Ledger) -> StemHandle:
    """The stem of a loader whose workers torch would start by this method."""
    within_reach = {
        "dataset": recipe.dataset,
        "collate_fn": recipe.collate_fn,
        "worker_init_fn": recipe.worker_init_fn,
    }
    lost_thread = find_lost_thread(within_reach)
    match choose(start_method, lost_thread):
        case InProcess(because):
            raise OnlyInProcess(
                f"{because} ({named('AF101')}). To get workers, make it in the worker, on first use (antifreeze.per_worker)"
            )
        case Clean():
            if (stem := _grow_clean(recipe)) is not None:
                return stem
            recipe = dataclasses.replace(recipe, identity=_forked(recipe.identity))
            return _grow(recipe, within_reach, lost_thread, ledger)
        case Grown():
            return _grow(recipe, within_reach, lost_thread, ledger)


def _grow(recipe: Recipe, within_reach: Mapping[str, Any], lost_thread: Hazard | None, ledger: Ledger) -> StemHandle:
    """A grown stem, whose workers mend what the fork has broken."""
    found = find_hazards(within_reach)
    with taken(found.locks) as (whole, busy):
        broken = (*found.broken, *(Broken(lock, unlock) for lock, _ in whole))
        stem = grow(dataclasses.replace(recipe, broken=broken))
    for hazard in (*found.mended, *(hazard for _, hazard in whole)):
        ledger.add(Kind.HANDLE_RENEWED, f"{hazard}; each worker has mended it for itself")
    held = found.hazards
    if lost_thread is not None:  # the thread itself, and what is part of its loop, go without saying
        others = (hazard for hazard in held if not hazard.path.startswith(lost_thread.path))
        held = (lost_thread, *(hazard for hazard in others if not hazard.may_freeze))
    hazards = (*held, *(hazard for _, hazard in busy))
    for hazard in hazards:
        _tell(hazard, ledger)
    stem.risk = next((str(hazard) for hazard in hazards if hazard.may_freeze), None)
    stem.holds_queue, stem.holds_pipe = found.has_queue, found.has_pipe
    stem.busy_locks = tuple(lock for lock, _ in busy)
    return stem


def _forked(identity: Identity) -> Identity:
    return dataclasses.replace(identity, is_spawned=False)


def _grow_clean(recipe: Recipe) -> StemHandle | None:
    """A clean stem, because the user asked for it: its workers are as torch's spawned ones. None: only a fork will do."""
    from antifreeze.engine.backends.clean import InheritanceOnly, grow_clean  # noqa: PLC0415 - most never need it

    spawn._check_not_importing_main()  # type: ignore[attr-defined]  # as torch does when it starts a worker
    try:
        return grow_clean(recipe)
    except InheritanceOnly:
        return None


def _tell(hazard: Hazard, ledger: Ledger) -> None:
    what = f"{hazard}. Workers are forked all the same, as torch's are"
    ledger.add(Kind.RISKY_FORK, what)
    say_once(f"{what}. To be safe, make it in the worker, on first use (antifreeze.per_worker)")
