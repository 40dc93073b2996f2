"""The training starts again in every worker, for there is no main guard.

What happens: with the start methods spawn and forkserver (the default of Windows, of macOS, and of Python 3.14
everywhere) a worker imports the script. What stands there at module level runs in the worker, too: it would make a
loader, and start workers of its own. Python stops that: "An attempt has been made to start a new process before the
current process has finished its bootstrapping phase". Each worker dies so, or, with less luck, processes start
processes.

How we know: the start method, and a loop over a loader with workers that runs when the script is imported; or the
error itself, in a trial.

What to do: put what starts the training under `if __name__ == "__main__":`. `antifreeze run train.py` does not let
workers run your script again.

Looks like: AF303 class-under-main-guard, where too much is under the guard.

Read on: https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods,
https://docs.pytorch.org/docs/stable/notes/windows.html#multiprocessing-error-without-if-clause-protection
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, loader_cases
from antifreeze.doctor.check import program_check
from antifreeze.doctor.facts import Facts, LoaderCall, LoaderLoop, Place, Source
from antifreeze.doctor.finding import Finding, Weight

_SAID = "bootstrapping phase"
# What a worker says that comes to `set_start_method` on its way to the loop.
_SAID_BEFORE = "context has already been set"

_CALL = LoaderCall(place=Place("train.py", 29), workers=2, is_module_level=True)
_LOOP = LoaderLoop(place=Place("train.py", 31), loader=_CALL.place, is_module_level=True)
SICK = Facts(
    source=Source(
        script="train.py",
        loaders=(_CALL,),
        loops=(_LOOP,),
        start_method="spawn",
        start_methods=(Place("train.py", 18),),
    )
)
HEALTHY = Facts(
    source=Source(
        script="train.py",
        loaders=(_CALL,),
        loops=(LoaderLoop(place=_LOOP.place, loader=_CALL.place),),
        start_method="spawn",
        start_methods=(Place("train.py", 18),),
        has_main_guard=True,
    )
)


@program_check("AF304", "no-main-guard", sick=SICK, healthy=HEALTHY)
def no_main_guard(facts: Facts) -> list[Finding]:
    found = [finding for each in loader_cases(facts) for finding in _examine(each)]
    # One guard is the cure for all loops: the surest finding speaks for the others.
    return sorted(found, key=lambda finding: finding.weight)[:1]


def _examine(case: LoaderCase) -> Iterator[Finding]:
    unguarded = [loop for loop in case.loops if loop.is_module_level or loop.called_from]
    is_seen = _is_seen(case, _SAID)
    is_seen_before = bool(unguarded) and case.imports_again and _is_seen(case, _SAID_BEFORE)
    if not is_seen and not (unguarded and case.imports_again):
        return
    loop = unguarded[0] if unguarded else None
    where = loop.place if loop else case.loader.iterated_at
    if loop is not None and loop.called_from is not None:
        where = loop.called_from
    method = case.start_method or "spawn"
    begins = f"this line runs whenever the script is imported, and start method {method} imports it in every worker"
    yield Finding(
        weight=Weight.CERTAIN if is_seen or is_seen_before else Weight.LIKELY if case.workers else Weight.POSSIBLE,
        what="every worker would start the training again, and dies at that",
        where=where,
        why=begins + (f"; it comes to the loop over the loader at {loop.place}" if loop and loop.called_from else ""),
        fix=('if __name__ == "__main__":  # above what starts the training', "antifreeze run {script}"),
        evidence=(f"reproduced: {_SAID}",)
        if is_seen
        else (f"reproduced: {_SAID_BEFORE}",)
        if is_seen_before
        else ("read in the source",),
        loader=case.number,
    )


def _is_seen(case: LoaderCase, words: str) -> bool:
    trial, run = case.as_written, case.facts.run
    said = [trial.stderr if trial else "", trial.raised.message if trial and trial.raised else ""]
    # Before its first batch, the program was at this loader if there is only one.
    if run is not None and len(case.facts.loaders) == 1:
        said.append(run.stderr)
    return any(words in each for each in said)
