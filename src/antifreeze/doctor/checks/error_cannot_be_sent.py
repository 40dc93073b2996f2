"""A sample fails, and its exception cannot be pickled: instead of the error there is a hang.

What happens: torch sends the exception of a worker to the training process by pickle. If its class is defined inside a
function (or is otherwise out of reach), that fails in a thread of the worker, the message is lost, and the training
waits for ever for a batch that will not come.

How we know: in a trial a sample raised, and yet nothing reached the training loop.

What to do: mend the sample that is named; define exception classes on the top level of a file. `antifreeze run
train.py` shows the error; `antifreeze run --on-error skip train.py` goes on without the sample.

Looks like: AF321 sample-fails, where the error arrives; AF305 result-cannot-be-sent, where the sample itself cannot be
pickled.

Read on: https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled,
https://github.com/pytorch/pytorch/issues/142884
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, first_line, is_users
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import FORKED, as_written, tried
from antifreeze.doctor.facts import Outcome, Place, Raised, Trial
from antifreeze.doctor.finding import Finding, Weight

_RAISED = Raised(
    type="DecodeError",
    message="frame 5 is damaged",
    stage="fetch",
    place=Place("train.py", 25),
    sample="5",
    worker=0,
)
SICK = tried(FORKED, as_written(Outcome.HANG, raised=_RAISED))
HEALTHY = tried(FORKED, as_written(Outcome.ERROR, raised=_RAISED))


@check("AF306", "error-cannot-be-sent", sick=SICK, healthy=HEALTHY)
def error_cannot_be_sent(case: LoaderCase) -> Iterator[Finding]:
    lost = [trial for trial in case.trials if trial.workers and is_lost(trial)]
    raised = lost[0].raised if lost else None
    if raised is None:
        return
    sample = f"sample {raised.sample}" if raised.sample is not None else f"the {raised.stage} step"
    yield Finding(
        weight=Weight.CERTAIN,
        what=f"{sample} fails, and the training waits for ever instead of saying so",
        where=raised.place,
        why=f"{raised.type}{at(raised.place)} ({first_line(raised.message)}) cannot be pickled, so it never "
        "reaches the training process",
        fix=(
            f"mend {sample}, and define {raised.type.rpartition('.')[2]} on the top level of a file",
            "antifreeze run {script}   (shows the error)",
            "antifreeze run --on-error skip {script}   (goes on without the sample)",
        ),
        evidence=(case.counted(lost), f"{raised.type}: {first_line(raised.message)}"),
        seen=raised,
    )


def is_lost(trial: Trial) -> bool:
    """Whether code of the user's raised, and what it raised did not arrive."""
    raised = trial.raised
    if raised is None or not is_users(raised):
        return False
    if raised.stage == "send":
        return raised.culprit.startswith("the exception ")
    return trial.outcome is Outcome.HANG and raised.stage in ("fetch", "collate", "init")
