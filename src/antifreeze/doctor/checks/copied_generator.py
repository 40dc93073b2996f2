"""Every worker has the same copy of a random generator, and draws the same numbers from it.

What happens: torch seeds the global generators (`random`, `numpy.random`, `torch`) differently in every worker and
epoch. A generator *object* in the dataset (`numpy.random.default_rng()`, `random.Random()`, `torch.Generator()`) is
copied as it is: all workers draw the same numbers, and every epoch begins with them again. Augmentations repeat,
silently.

How we know: in a trial several workers drew the same numbers from the generator at this path.

What to do: `antifreeze run --fix rng train.py` gives every copy a seed of its own. In your code: make the generator in
the worker, from `torch.utils.data.get_worker_info().seed`, or draw from `numpy.random` directly.

Looks like: AF505 fixed-worker-seed, where worker_init_fn makes all epochs alike. That `np.random` itself draws the same
in all workers, as is often said, was true before torch 1.9.

Read on: https://docs.pytorch.org/docs/stable/data.html#randomness-in-multi-process-data-loading,
https://numpy.org/doc/stable/reference/random/parallel.html,
https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.get_worker_info
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, whose
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Held, Loader, Place
from antifreeze.doctor.finding import Finding, Weight

MAKES = (
    "numpy.random.default_rng",
    "numpy.random.Generator",
    "numpy.random.RandomState",
    "random.Random",
    "torch.Generator",
)
SEED = "torch.utils.data.get_worker_info().seed"

_RNG = Held(path="dataset.rng", kind="generator", what="a numpy Generator", place=Place("train.py", 22))
_LOADER = Loader(number=0, num_workers=2, start_method="fork", held=(_RNG,))
SICK = tried(_LOADER, as_written(same_draws=("dataset.rng",)))
HEALTHY = tried(_LOADER, as_written())


@check("AF501", "copied-generator", sick=SICK, healthy=HEALTHY)
def copied_generator(case: LoaderCase) -> Iterator[Finding]:
    yield from _seen(case)
    yield from _read(case)


def _seen(case: LoaderCase) -> Iterator[Finding]:
    seen = [trial for trial in case.trials if trial.same_draws and trial.workers > 1]
    if not seen or case.num_workers < 2:
        return
    path = seen[0].same_draws[0]
    held = next((each for each in case.held if each.path == path), None)
    more = f" (and {', '.join(seen[0].same_draws[1:4])})" if len(seen[0].same_draws) > 1 else ""
    yield Finding(
        weight=Weight.CERTAIN,
        what="all workers draw the same random numbers, and begin with them again in every epoch",
        where=(held.place if held else None) or case.built_at,
        why=f"{whose(held) if held else path}{more} is copied into each worker in one and the same state",
        fix=_fix(held.what if held else ""),
        evidence=(f"reproduced: {seen[0].workers} workers drew the same from {path}",),
    )


def _fix(kind: str) -> tuple[str, ...]:
    """For a generator of the same kind."""
    made = f"numpy.random.default_rng({SEED})"
    if "random.Random" in kind and "RandomState" not in kind:
        made = f"random.Random({SEED})"
    elif "torch" in kind:
        made = f"torch.Generator().manual_seed({SEED})"
    elif "RandomState" in kind:
        made = f"numpy.random.RandomState({SEED} % 2**32)"
    return ("antifreeze run --fix rng {script}", f"make it in the worker: {made}")


def _read(case: LoaderCase) -> Iterator[Finding]:
    for dataset in case.unrun_datasets:
        if case.has_workers(more_than=1) is False:
            continue
        # Who asks which worker it is, or has an init function, may seed it anew there.
        may_seed = dataset.asks_for_worker_info is not False or "worker_init_fn" in case.arguments
        for each in dataset.assignments:
            if each.value in MAKES and each.used_at is not None:
                yield Finding(
                    weight=Weight.POSSIBLE if may_seed else Weight.LIKELY,
                    what="all workers would draw the same random numbers, and begin with them again in every epoch",
                    where=each.place,
                    why=f"dataset.{each.name} ({each.value}, {each.place}) is drawn from at {each.used_at}; each "
                    f"worker of the loader at {case.built_at} has a copy in the same state",
                    fix=_fix(each.value),
                    evidence=("as the source has it",),
                )
