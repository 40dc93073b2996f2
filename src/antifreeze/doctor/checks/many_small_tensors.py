"""A batch is made of very many small tensors, and workers make loading slower.

What happens: torch puts every single tensor of a batch into its own piece of shared memory, with its own open file, and
maps it again in the training process: about 0.1 ms each. With hundreds of small fields that is more than the loading
itself, and `num_workers=0` is faster.

How we know: the number of tensors in a batch, and the time for a batch with workers against that without.

What to do: `antifreeze run train.py`: a batch travels in one piece, whatever it is made of. In your code: put the
fields into one tensor in `collate_fn` (`torch.stack`), and take it apart in the training loop; or `num_workers=0`.

Looks like: AF401 workers-restarted, where starting takes the time; AF404 too-many-workers.

Read on: https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies,
https://docs.pytorch.org/docs/stable/data.html#working-with-collate-fn
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried, with_workers
from antifreeze.doctor.facts import Loader, Outcome, Place, Trial
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.speeds import batch_s

# At 0.1 ms each, fewer cannot be felt.
MANY = 50

_LOADER = Loader(number=0, num_workers=2, built_at=Place("train.py", 36))
_SICK = as_written(batches=32, seconds=1.5, first_batch_s=0.1, batch_tensors=150)
_ALONE = with_workers(0, batches=32, seconds=0.06, first_batch_s=0.002)
SICK = tried(_LOADER, _SICK, _ALONE)
HEALTHY = tried(_LOADER, as_written(batches=32, seconds=1.5, first_batch_s=0.1, batch_tensors=2), _ALONE)


@check("AF402", "many-small-tensors", sick=SICK, healthy=HEALTHY)
def many_small_tensors(case: LoaderCase) -> Iterator[Finding]:
    tensors = max((trial.batch_tensors or 0 for trial in case.trials), default=0)
    loaded = [t for t in case.trials if t.engine == "torch" and t.workers and per_batch(t) is not None]
    alone = [t for t in case.trials if not t.workers and per_batch(t) is not None]
    if tensors < MANY or not loaded or not alone:
        return
    slow, fast = per_batch(loaded[0]) or 0.0, per_batch(alone[0]) or 0.0
    if slow <= 1.2 * fast:
        return
    yield Finding(
        weight=Weight.CERTAIN if slow > 2 * fast else Weight.LIKELY,
        what=f"workers make loading slower: {1000 * slow:.1f} ms for a batch with {loaded[0].workers} of them, "
        f"{1000 * fast:.1f} ms without",
        where=case.built_at,
        why=f"a batch of the loader{at(case.built_at)} is made of {tensors} tensors, and torch sends each in a "
        "piece of shared memory of its own",
        fix=(
            "antifreeze run {script}",
            "put the fields into one tensor in collate_fn: torch.stack(…)",
            "DataLoader(…, num_workers=0)",
        ),
        evidence=(f"{tensors} tensors a batch", f"{1000 * slow:.1f} ms against {1000 * fast:.1f} ms"),
    )


def per_batch(trial: Trial) -> float | None:
    return batch_s(trial) if trial.outcome is Outcome.OK and trial.batches >= 4 else None
