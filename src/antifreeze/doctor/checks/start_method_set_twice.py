"""The start method of processes is set when it is settled already.

What happens: `multiprocessing.set_start_method` may be called once in a process, before anything has asked for the
start method. A second call, or one after `get_start_method()`, after a Queue, a Lock or a Pool was made, or after a
library did any of that, ends the program: "RuntimeError: context has already been set".

How we know: the error itself; or, in the source, a call without `force=True` that always comes after another such
call.

What to do: call it first of all, under the main guard; or `set_start_method("spawn", force=True)`; or leave it alone,
and tell the loader: `DataLoader(…, multiprocessing_context="spawn")`.

Looks like: AF304 no-main-guard: without a guard, the call runs again in every worker.

Read on: https://docs.python.org/3/library/multiprocessing.html#multiprocessing.set_start_method
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import are_one
from antifreeze.doctor.check import program_check
from antifreeze.doctor.facts import Clash, Facts, Outcome, Place, Raised, Run, Source
from antifreeze.doctor.finding import Finding, Weight

SAID = "context has already been set"

_PLACE = Place("train.py", 31, "", 'mp.set_start_method("spawn")')
SICK = Facts(
    run=Run(
        command="python train.py",
        outcome=Outcome.ERROR,
        raised=Raised(type="RuntimeError", message=SAID, stage="script", place=_PLACE),
    )
)
HEALTHY = Facts(
    run=Run(command="python train.py", outcome=Outcome.OK, reached_a_loader=True),
    source=Source(script="train.py", start_methods=(_PLACE,)),
)


@program_check("AF905", "start-method-set-twice", sick=SICK, healthy=HEALTHY)
def start_method_set_twice(facts: Facts) -> Iterator[Finding]:
    clashes = facts.source.start_method_clashes if facts.source else ()
    if facts.run is None:
        yield from (_finding(each.set_again, each.settled, Weight.POSSIBLE) for each in clashes)
    elif _is_seen(facts.run):
        yield _seen(facts.run, clashes)
    else:
        yield from _in_workers(facts)


def _is_seen(run: Run) -> bool:
    if run.raised is not None:
        return SAID in run.raised.message
    # A program that has come to its loader was not stopped by this; its workers may have been, and say so there, too.
    return SAID in run.stderr and not run.reached_a_loader


def _in_workers(facts: Facts) -> Iterator[Finding]:
    """Workers that import a script which sets the method as soon as it is imported."""
    dead = [trial for trial in facts.trials if trial.engine == "torch" and trial.workers and SAID in trial.stderr]
    where = facts.source.start_methods[0] if facts.source and facts.source.start_methods else None
    if not dead:
        return
    yield Finding(
        weight=Weight.CERTAIN,
        what="every worker ends where the script sets the start method of processes",
        where=where,
        why=f"{SAID}: the workers import the script, and this line runs again there",
        fix=('if __name__ == "__main__":  # above this line, and above what starts the training',),
        evidence=(f"reproduced: {SAID}",),
        loader=dead[0].loader,
    )


def _seen(run: Run, clashes: tuple[Clash, ...]) -> Finding:
    where = run.raised.place if run.raised else None
    earlier = next((each.settled for each in clashes if where is None or are_one(each.set_again, where)), None)
    return _finding(where, earlier, Weight.CERTAIN)


def _finding(where: Place | None, earlier: Place | None, weight: Weight) -> Finding:
    settled = f"{earlier} has settled it before" if earlier else "something, perhaps a library, has settled it before"
    return Finding(
        weight=weight,
        what="the program ends where it sets the start method of processes",
        where=where,
        why=f"{SAID}: {settled}",
        fix=(
            'set_start_method("spawn", force=True)',
            'DataLoader(…, multiprocessing_context="spawn")  # and no set_start_method',
        ),
        evidence=(f"reproduced: {SAID}",) if weight is Weight.CERTAIN else ("read in the source",),
    )
