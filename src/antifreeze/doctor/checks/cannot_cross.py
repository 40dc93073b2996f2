"""Something in the dataset cannot be sent to a worker.

What happens: with spawn and forkserver (the default on Windows, on macOS, and from Python 3.14 on Linux) the dataset,
collate_fn and worker_init_fn are pickled and sent to every worker. A lambda, a class or function that is defined inside
another, an open file, a database, a lock or a generator cannot be. Training ends before the first batch with "Can't
pickle …" or "cannot pickle …", which does not say where the thing is.

How we know: Python's own pickler was asked for every part of the loader, and the path to what it refuses was followed.

What to do: `antifreeze run train.py`: lambdas, local classes, locks, files and databases reach our workers. In your
code: a named function on the top level of a file instead of the lambda or local class; open files and databases in the
worker: `self.file = antifreeze.per_worker(lambda: open(path, "rb"))`, then `self.file().read()`; `list(…)` instead of a
generator.

Looks like: AF303 class-under-main-guard, where pickling works and the worker cannot find the class; AF305
result-cannot-be-sent, where a sample on its way back is to blame.

Read on: https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled,
https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods,
https://docs.pytorch.org/docs/stable/data.html#platform-specific-behaviors
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import IMPORTING, LoaderCase, first_line
from antifreeze.doctor.check import check
from antifreeze.doctor.facts import DatasetClass, Facts, Loader, Obstacle, Place, Raised
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.handles import opener, own_name

# Values of attributes that pickle refuses, as the source has them.
REFUSED = {
    "lambda": "a lambda",
    "generator": "a generator",
    "open": "an open file",
    "threading.Lock": "a lock",
    "threading.RLock": "a lock",
    "threading.Condition": "a lock",
    "threading.Event": "a lock",
    "threading.local": "thread-local storage",
    "lmdb.open": "an LMDB environment",
    "h5py.File": "an HDF5 file",
    "sqlite3.connect": "a database connection",
    "socket.socket": "a socket",
    "socket.create_connection": "a socket",
    "zipfile.ZipFile": "an open archive",
    "tarfile.open": "an open archive",
    "concurrent.futures.ThreadPoolExecutor": "a thread pool",
    "concurrent.futures.ProcessPoolExecutor": "a process pool",
}
FIXES = {
    "lambda": "use a named function on the top level of a file instead of the lambda",
    "local": "move the class or function to the top level of a file",
    "generator": "make it a list, or make it in each worker",
    "lock": "make it in each worker: self.lock = antifreeze.per_worker(threading.Lock), then with self.lock():",
}

_LAMBDA = Obstacle(
    path="dataset.transform",
    what="the function <lambda> at train.py:33",
    why="Can't pickle <function <lambda>>",
    place=Place("train.py", 33),
)
SICK = Facts(loaders=(Loader(number=0, num_workers=2, start_method="spawn", obstacles=(_LAMBDA,), crosses=True),))
HEALTHY = Facts(loaders=(Loader(number=0, num_workers=2, start_method="fork", obstacles=(_LAMBDA,), crosses=True),))


@check("AF301", "cannot-cross", sick=SICK, healthy=HEALTHY)
def cannot_cross(case: LoaderCase) -> Iterator[Finding]:
    yield from _seen(case)
    yield from _read(case)


def _seen(case: LoaderCase) -> Iterator[Finding]:
    if case.start_method not in IMPORTING or not case.num_workers:
        return
    obstacles = [each for each in case.loader.obstacles if not each.is_main_guard]
    raised = next((trial.raised for trial in case.trials if trial.raised and trial.raised.stage == "start"), None)
    if not obstacles:
        if raised and "pickle" in raised.message.lower():
            yield _by_error(case, raised)
        return
    first = obstacles[0]
    others = "".join(f"; {each.path} is {each.what}" for each in obstacles[1:4])
    is_ours = case.loader.crosses is not False
    yield Finding(
        weight=Weight.CERTAIN,
        what=f"{first.path} cannot be sent to the workers, so none can start",
        where=first.place or case.built_at,
        why=f"{first.path} is {first.what}, and workers are started by {case.start_method}, which pickles the dataset"
        f"{others}",
        fix=(
            *(("antifreeze run {script}",) if is_ours else ()),
            _remedy(first.what, first.path, first.place),
            *_forks(case),
        ),
        evidence=(f"pickle: {first_line(first.why)}", *(("reproduced",) if raised else ())),
    )


def _by_error(case: LoaderCase, raised: Raised) -> Finding:
    return Finding(
        weight=Weight.CERTAIN,
        what="the loader cannot be sent to its workers, so none can start",
        where=raised.culprit_at or raised.place or case.built_at,
        why=f"{raised.culprit or first_line(raised.message)}; workers are started by {case.start_method}, which pickles it",
        fix=("antifreeze run {script}", _remedy(f"{raised.culprit} {raised.message}"), *_forks(case)),
        evidence=(f"reproduced: {raised.type}: {first_line(raised.message)}",),
    )


def _remedy(what: str, path: str = "self.x", place: Place | None = None) -> str:
    name = own_name(path, place)
    lower = what.lower()
    if "lambda" in lower:
        return FIXES["lambda"]
    if "<locals>" in lower:
        return FIXES["local"]
    if "generator" in lower:
        return FIXES["generator"]
    if "lock" in lower:
        return FIXES["lock"].replace("self.lock", name)
    opens = opener(what)
    if opens is None:
        return f"leave {name} out of what is pickled (__getstate__), and make it anew in the worker"
    return f"open it in each worker: {name} = antifreeze.per_worker(lambda: {opens}), then {name}()"


def _forks(case: LoaderCase) -> tuple[str, ...]:
    is_asked = case.facts.machine is None or case.facts.machine.start_method == "fork"
    return (
        ('DataLoader(…, multiprocessing_context="fork"), where no threads and no GPU are in use yet',)
        if is_asked
        else ()
    )


# --- from the source alone


def _read(case: LoaderCase) -> Iterator[Finding]:
    for dataset in case.unrun_datasets:
        if case.start_method in IMPORTING and case.has_workers() is not False:
            yield from _refused(case, dataset)


def _refused(case: LoaderCase, dataset: DatasetClass) -> Iterator[Finding]:
    for assignment in () if dataset.pickles_itself else dataset.assignments:
        if assignment.value in REFUSED:
            path = f"dataset.{assignment.name}"
            yield _from_source(case, path, REFUSED[assignment.value], assignment.place)
    if dataset.is_local:
        yield _from_source(case, "dataset", f"of the local class {dataset.name} (<locals>)", dataset.place)
    for argument in ("collate_fn", "worker_init_fn"):
        if case.arguments.get(argument, "").lstrip().startswith("lambda"):
            yield _from_source(case, argument, "a lambda", case.built_at)
    if "lambda" in case.arguments.get("dataset", ""):
        yield _from_source(case, "dataset", "given a lambda", case.built_at, weight=Weight.POSSIBLE)


def _from_source(
    case: LoaderCase, path: str, what: str, place: Place | None, *, weight: Weight = Weight.LIKELY
) -> Finding:
    return Finding(
        weight=weight,
        what=f"{path} cannot be sent to the workers, so none can start",
        where=place,
        why=f"{path} is {what}, and the workers of the loader at {case.built_at} are started by "
        f"{case.start_method}, which pickles the dataset",
        fix=("antifreeze run {script}", _remedy(what, path)),
        evidence=("as the source has it",),
        is_cause=False,
    )
