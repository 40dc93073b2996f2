"""A database that was opened before the fork fails in the workers.

What happens: an LMDB environment belongs to the process that opened it: its lock table knows that process only, so
reading in a forked worker fails with `MDB_READERS_FULL`, `MDB_BAD_RSLOT` or "Invalid argument". SQLite forbids the use
of a connection across a fork, too.

How we know: the dataset holds an open database, workers are forked, and its own errors came in a trial, while it works
without workers.

What to do: open it in the worker: `self.env = antifreeze.per_worker(lambda: lmdb.open(path, readonly=True,
lock=False))`, then `self.env().begin()`. `antifreeze run train.py` opens LMDB and SQLite databases again in each
worker, for reading.

Looks like: AF307 shared-file-offset. An LMDB environment opened with `readonly=True, lock=False`, and reading from
SQLite, went well in our tests, so nothing is said about those; h5py by path as well.

Read on: https://lmdb.readthedocs.io/en/latest/#environment-class, https://www.sqlite.org/howtocorrupt.html (2.6,
forks), https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, first_line, raised_in, whose
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried, with_workers
from antifreeze.doctor.facts import Held, Loader, Outcome, Place, Raised
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.handles import Harm, harm_of

# What LMDB says of its table of readers, to every process once forked ones have filled or broken it.
OF_THE_TABLE = re.compile(r"^lmdb\.(ReadersFullError|BadRslotError|BadTxnError|InvalidParameterError)$")
ERRORS = ("lmdb.", "sqlite3.")

_BASE = Held(path="dataset.env", kind="lmdb", what="an LMDB environment 'db'", place=Place("train.py", 25))
_LOADER = Loader(number=0, num_workers=2, start_method="fork", held=(_BASE,))
_RAISED = Raised(
    type="lmdb.ReadersFullError",
    message="mdb_txn_begin: MDB_READERS_FULL: Environment maxreaders limit reached",
    stage="fetch",
    place=Place("train.py", 36),
    sample="0",
)
SICK = tried(_LOADER, as_written(Outcome.ERROR, raised=_RAISED), with_workers(0, is_whole_epoch=True))
HEALTHY = tried(_LOADER, as_written())


@check("AF309", "forked-database", sick=SICK, healthy=HEALTHY)
def forked_database(case: LoaderCase) -> Iterator[Finding]:
    harm = harm_of(case, "lmdb", "sqlite") or _table_is_full(case)
    if harm is None:
        return
    is_its_own = harm.raised is not None and harm.raised.type.startswith(ERRORS)
    name = harm.held.path.replace("dataset.", "self.", 1)
    opens = "lmdb.open(path, readonly=True, lock=False)" if harm.held.kind == "lmdb" else "sqlite3.connect(path)"
    yield Finding(
        weight=Weight.CERTAIN if is_its_own else harm.weight,
        what="a database that was opened in the training process fails in the workers",
        where=harm.held.place or (harm.raised.place if harm.raised else None) or case.built_at,
        why=f"{whose(harm.held)} was opened before the workers were forked, and belongs to the process that opened it"
        f"{'; it failed' + at(harm.raised.place) if harm.raised and harm.raised.place else ''}",
        fix=(
            "antifreeze run {script}",
            f"open it in each worker: {name} = antifreeze.per_worker(lambda: {opens}), then {name}()",
        ),
        evidence=harm.evidence,
        sample=harm.sample,
    )


def _table_is_full(case: LoaderCase) -> Harm | None:
    """Forked workers spoil the table of readers for the training process as well, so that it fails there, too."""
    held = next((each for each in case.held if each.kind == "lmdb"), None)
    raised = [trial.raised for trial in raised_in(case, "fetch") if trial.workers and trial.raised]
    failed = [each for each in raised if OF_THE_TABLE.match(each.type)]
    if held is None or not case.is_forked or not failed:
        return None
    seen = f"reproduced: {failed[0].type}: {first_line(failed[0].message)}"
    return Harm(held, Weight.CERTAIN, (seen,), failed[0], failed[0].sample)
