"""What the workers need is defined under `if __name__ == "__main__":`.

What happens: with the start methods spawn and forkserver (the default of Windows, of macOS, and of Python 3.14
everywhere) a worker imports the script again, and there the block under the guard does not run. So the class of the
dataset, or the collate_fn, does not exist in the worker: "Can't get attribute 'MyDataset' on <module '__mp_main__'>",
and the worker is gone.

How we know: the start method, and the definition under the guard that the loader is given; or the error itself, in a
trial.

What to do: move classes and functions above the guard, and leave under it only what starts the training.
`antifreeze run train.py` sends such classes by value.

Looks like: AF301 cannot-cross, where something cannot be pickled at all; AF304 no-main-guard, the opposite.

Read on: https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods,
https://docs.pytorch.org/docs/stable/data.html#platform-specific-behaviors
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.facts import Facts, LoaderCall, Place, Source
from antifreeze.doctor.finding import Finding, Weight

_MISSING = re.compile(r"Can't get attribute '([\w.]+)' on <module '__(?:mp_)?main__'")

_CALL = LoaderCall(
    place=Place("train.py", 28),
    workers=2,
    start_method="spawn",
    datasets=("Numbers",),
    guarded=(Place("train.py", 20, "Numbers", "class Numbers(Dataset):"),),
)
SICK = Facts(source=Source(script="train.py", loaders=(_CALL,), has_main_guard=True))
HEALTHY = Facts(
    source=Source(
        script="train.py",
        loaders=(LoaderCall(place=Place("train.py", 28), workers=2, start_method="fork", guarded=_CALL.guarded),),
        has_main_guard=True,
    )
)


@check("AF303", "class-under-main-guard", sick=SICK, healthy=HEALTHY)
def class_under_main_guard(case: LoaderCase) -> Iterator[Finding]:
    guarded = _guarded(case)
    missing = _missing(case)
    if not missing and not (guarded and case.imports_again):
        return
    name = missing or next(iter(guarded))
    yield Finding(
        weight=Weight.CERTAIN if missing else Weight.LIKELY if case.workers else Weight.POSSIBLE,
        what="the workers die at their start, for they cannot find what they need in your script",
        where=guarded.get(name),
        why=f'{name} is defined under `if __name__ == "__main__":`, and with start method '
        f"{case.start_method or 'spawn'} a worker imports the script without that block",
        fix=(f"move the definition of {name} above the main guard", "antifreeze run {script}"),
        evidence=(f"reproduced: Can't get attribute '{name}'",) if missing else ("read in the source",),
    )


def _guarded(case: LoaderCase) -> dict[str, Place]:
    """Names of definitions under the guard → where they are."""
    read = {place.function: place for place in (case.call.guarded if case.call else ())}
    obstacles = case.loader.obstacles
    seen = {_name(each.what): each.place for each in obstacles if each.is_main_guard and each.place is not None}
    return read or seen


def _name(what: str) -> str:
    """`the class Numbers at train.py:20` → `Numbers`."""
    words = re.findall(r"[A-Za-z_][\w.]*", what.partition(" at ")[0])
    return words[-1].rpartition(".")[2] if words else what


def _missing(case: LoaderCase) -> str | None:
    """The name that a worker did not find in the script."""
    trial = case.as_written
    found = trial and _MISSING.search(f"{trial.raised.message if trial.raised else ''}\n{trial.stderr}")
    return found[1] if found else None
