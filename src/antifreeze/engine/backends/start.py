"""Starts the stem that has been chosen; what deviates from torch's own way is said and written down."""

from __future__ import annotations

import dataclasses
import time
from multiprocessing import spawn

from antifreeze.codes import named
from antifreeze.engine.backends import interruptions
from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.backends.choice import Clean, Grown, Hazard, InProcess, choose
from antifreeze.engine.backends.grown import grow
from antifreeze.engine.backends.hazards.lost_threads import find_lost_thread
from antifreeze.engine.backends.hazards.search import find_hazard
from antifreeze.engine.showing import text_of
from antifreeze.engine.wire.messages import Unfit
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.errors import AntifreezeError, ArenaError, InternalError
from antifreeze.observe.ledger import Kind, Ledger
from antifreeze.observe.say import say_once
from antifreeze.settings import Mode, mode

STOP_DEADLINE_S = 1.0


class OnlyInProcess(Exception):
    """No worker can load this dataset: it is loaded in the trainer, and this is why, in words."""


class NotRebuilt(Exception):
    """The dataset could not be rebuilt in a fresh process, and this is what was raised there, in words."""


def start_stem(recipe: Recipe, start_method: str, ledger: Ledger) -> StemHandle:
    """The stem of a loader whose workers torch would start by this method."""
    within_reach = _within_reach(recipe)
    hazard = find_lost_thread(within_reach)
    if hazard is None and start_method == "fork":
        hazard = find_hazard(within_reach)
    match choose(start_method, hazard):
        case InProcess(because):
            raise OnlyInProcess(_stays(because))
        case Grown():
            return grow(recipe)
        case Clean(because):
            return _grow_asked(recipe) if because is None else _grow_around(because, recipe, ledger)


def _within_reach(recipe: Recipe) -> dict[str, object]:
    return {
        "dataset": recipe.dataset,
        "collate_fn": recipe.collate_fn,
        "worker_init_fn": recipe.worker_init_fn,
    }


def _grow_asked(recipe: Recipe) -> StemHandle:
    """A clean stem because the user asked for it: its workers are as torch's spawned ones."""
    from antifreeze.engine.backends.clean import InheritanceOnly, grow_clean  # noqa: PLC0415 - most never need it

    spawn._check_not_importing_main()  # type: ignore[attr-defined]  # as torch does when it starts a worker
    try:
        return grow_clean(recipe, in_place_of_fork=False)
    except InheritanceOnly:
        return grow(_forked(recipe))


def _forked(recipe: Recipe) -> Recipe:
    return dataclasses.replace(recipe, identity=dataclasses.replace(recipe.identity, is_spawned=False))


def _grow_around(hazard: Hazard, recipe: Recipe, ledger: Ledger) -> StemHandle:
    """A clean stem if the dataset reaches it; else a fork all the same, because it may go well, and is watched."""
    try:
        stem = _grow_settled(recipe)
    except Exception as error:  # whatever the user's classes do when they are pickled and rebuilt
        if interruptions.is_of_a_handler(error):
            raise
        is_ours = isinstance(error, InternalError | ArenaError | OSError)
        if is_ours and mode() is Mode.REQUIRE:
            raise
        obstacle = "no fresh process could be started" if is_ours else "no fresh process can take over"
        if hazard.is_certain:
            raise OnlyInProcess(_stays(hazard, f", and {obstacle}: {_first_line(error)}")) from error
        stem = grow(recipe)
        what = f"{hazard}. Workers are forked all the same, for {obstacle}: {_first_line(error)}"
        stem.risk = str(hazard) if hazard.is_thread else None
        ledger.add(Kind.RISKY_FORK, what)
        say_once(f"{what}. To be safe, make it in the worker, on first use (antifreeze.per_worker)")
        return stem
    stem.risk = str(hazard) if hazard.is_thread else None
    stem.because = f"workers start in a fresh process instead of a fork: {hazard}"
    ledger.add(Kind.CLEAN_START, stem.because)
    say_once(stem.because)
    return stem


def _stays(hazard: Hazard, obstacle: str = "") -> str:
    return (
        f"{hazard}{obstacle} ({named('AF101')}). To get workers, make it in the worker, on first use "
        "(antifreeze.per_worker)"
    )


def _grow_settled(recipe: Recipe) -> StemHandle:
    """A clean stem in which the dataset has been rebuilt; raises what stands in the way of that."""
    from antifreeze.engine.backends.clean import START_IDLE_S, grow_clean  # noqa: PLC0415 - most never need it

    stem = grow_clean(recipe, in_place_of_fork=True)
    try:
        match stem.await_word(idle_s=START_IDLE_S):
            case Unfit(_, what):
                raise NotRebuilt(f"{what} (while the dataset was being rebuilt there)")
            case None:
                raise InternalError("it ended, or did not answer")
    except BaseException:
        stem.stop(deadline=time.monotonic() + STOP_DEADLINE_S)
        raise
    return stem


def _first_line(error: Exception) -> str:
    if isinstance(error, NotRebuilt):
        return str(error)
    if isinstance(error, AntifreezeError):
        return error.what.partition("\n")[0]
    return f"{type(error).__name__}: {text_of(error)}".partition("\n")[0]
