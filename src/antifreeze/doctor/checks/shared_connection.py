"""Forked workers talk over one connection, and read each other's answers.

What happens: an HTTP session, a socket or a database client that is opened in `__init__` is one connection for all
forked workers. They write their requests into it and read whatever answer comes next. Samples are swapped without an
error, or the protocol breaks.

How we know: the dataset holds an open socket, workers are forked, and in a trial samples from workers differ from those
that the training process gets, or fail although they load without workers.

What to do: connect in the worker: `self.session = antifreeze.per_worker(requests.Session)`, then
`self.session().get(…)`. Under `antifreeze run train.py`, HTTP connections that a dataset holds are made again in each
worker by themselves.

Looks like: AF307 shared-file-offset, the same with a file; AF321 sample-fails, where the server's answer is bad without
workers, too.

Read on: https://man7.org/linux/man-pages/man2/fork.2.html (what is shared),
https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, whose
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried, with_workers
from antifreeze.doctor.facts import Held, Loader, Place
from antifreeze.doctor.finding import Finding
from antifreeze.doctor.handles import harm_of, own_name

_CONNECTION = Held(path="dataset.conn", kind="socket", what="an HTTPConnection", place=Place("train.py", 39))
_LOADER = Loader(number=0, num_workers=2, start_method="fork", held=(_CONNECTION,))
SICK = tried(_LOADER, as_written(wrong=("2",)), with_workers(0))
HEALTHY = tried(_LOADER, as_written())


@check("AF308", "shared-connection", sick=SICK, healthy=HEALTHY)
def shared_connection(case: LoaderCase) -> Iterator[Finding]:
    harm = harm_of(case, "socket")
    if harm is None:
        return
    name = own_name(harm.held.path, harm.held.place)
    yield Finding(
        weight=harm.weight,
        what="workers get each other's answers: they share one connection",
        where=harm.held.place or (harm.raised.place if harm.raised else None) or case.built_at,
        why=f"{whose(harm.held)} was connected before the workers were forked, so all of them write to and read "
        f"from one socket{at(harm.raised.place if harm.raised else None)}",
        fix=(
            f"connect in each worker: {name} = antifreeze.per_worker(make_connection), then use {name}()",
            "antifreeze run {script}",
        ),
        evidence=harm.evidence,
        sample=harm.sample,
    )
