"""A sample cannot be pickled on its way back from the worker, and the loader waits for it for ever.

What happens: a batch goes to the training process by pickle, in a thread of the worker. If it holds something that
cannot be pickled (a lambda, an open file, a lock, a tensor that requires gradients), the error is printed there, the
batch is gone, and the training waits. With `num_workers=0` nothing is pickled, so everything works.

How we know: the worker's attempt to pickle a batch failed in a trial, and the part to blame was looked for.

What to do: return plain values from `__getitem__` (tensors, arrays, numbers, texts, lists and dicts of them).
`antifreeze run train.py` carries lambdas and local classes, and makes anything else an error that names it.

Looks like: AF301 cannot-cross, where the dataset cannot be sent to the worker; AF306 error-cannot-be-sent, where the
exception of a sample cannot; AF204 shm-too-small, which with a custom collate_fn hangs in the same way.

Read on: https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled,
https://github.com/pytorch/pytorch/issues/142884
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, carries_gradients, first_line, is_users, of_sample
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import FORKED, as_written, tried
from antifreeze.doctor.facts import Loader, Outcome, Place, Raised
from antifreeze.doctor.finding import Finding, Weight

SICK = tried(
    Loader(number=0, num_workers=2, start_method="fork", built_at=Place("train.py", 37)),
    as_written(
        Outcome.HANG,
        raised=Raised(
            type="AttributeError",
            message="Can't pickle local object 'Sample.__init__.<locals>.<lambda>'",
            stage="send",
            worker=0,
            culprit="batch[0].decode (a lambda)",
            culprit_at=Place("train.py", 24),
        ),
    ),
)
HEALTHY = tried(FORKED, as_written())


@check("AF305", "result-cannot-be-sent", sick=SICK, healthy=HEALTHY)
def result_cannot_be_sent(case: LoaderCase) -> Iterator[Finding]:
    return _lost(case) if case.is_live else _failed(case)


def _failed(case: LoaderCase) -> Iterator[Finding]:
    failed = [trial for trial in case.trials if trial.raised and _is_sending(trial.raised)]
    raised = failed[0].raised if failed else None
    if raised is None:
        return
    hangs = any(trial.outcome is Outcome.HANG for trial in failed)
    # Classes of batches come from the collate_fn.
    made = case.loader.collate_at or case.loader.dataset_at
    yield Finding(
        weight=Weight.CERTAIN,
        what=f"a batch{of_sample(raised.sample)} cannot be sent from the worker"
        f"{', and the training waits for it for ever' if hangs else ''}",
        where=raised.culprit_at or raised.place or made or case.built_at,
        why=_why(raised),
        fix=_fix(raised),
        evidence=(case.counted(failed), f"{raised.type}: {first_line(raised.message)}"),
        seen=raised,
    )


def _why(raised: Raised) -> str:
    if carries_gradients(raised):
        return "its tensors require gradients, and what autograd knows of them cannot leave the worker"
    place = raised.culprit_at or raised.place
    culprit = f"{raised.culprit}, which" if " is " in raised.culprit else raised.culprit
    return (
        f"{culprit or 'the batch'} cannot be pickled{f', made at {place}' if place else ''}; torch prints the error in a "
        "thread of the worker and drops the batch"
    )


def _fix(raised: Raised) -> tuple[str, ...]:
    if carries_gradients(raised):
        return ("return x.detach() from the dataset, or compute it under torch.no_grad()",)
    return (
        "return plain values from the dataset: tensors, arrays, numbers, texts",
        "antifreeze run {script}   (carries lambdas and local classes, names the rest)",
    )


def _lost(case: LoaderCase) -> Iterator[Finding]:
    """In a running program: everybody waits, and nobody has the batch."""
    (trial,), trainer = case.trials, case.waiting
    idle = [each for each in trial.stuck if each.role == "worker" and each.stage == "idle"]
    if trainer is None or trial.engine != "torch" or not idle or len(idle) < trial.workers:
        return
    waits = f"the training{at(trainer.place)} waits for a batch that nobody is making"
    yield Finding(
        weight=Weight.POSSIBLE,
        what=f"all {len(idle)} workers are idle, and {waits}",
        where=trainer.place,
        why="the batch was made and got lost: torch drops one that cannot be pickled, or finds no room in /dev/shm, "
        "after it has printed the error to stderr",
        fix=(
            "look for a traceback of _feed in what the program wrote to stderr",
            "antifreeze run {script}   (names the part that cannot be sent, and needs no /dev/shm)",
        ),
        evidence=("seen in the running program", f"nobody moved for {min(each.seconds for each in idle):.0f} s"),
        pid=trainer.pid,
        rivals=("AF204", "AF306"),
        decide="antifreeze doctor {script}",
        is_cause=False,
    )


def _is_sending(raised: Raised) -> bool:
    return (
        (raised.stage == "send" or carries_gradients(raised))
        and is_users(raised)
        and not raised.culprit.startswith("the exception ")
    )
