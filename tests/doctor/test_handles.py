"""What is advised about a handle fits its kind and the class that holds it."""

import dataclasses

import pytest

from antifreeze.doctor.checks.fork_after_threads import fork_after_threads
from antifreeze.doctor.checks.lost_native_pool import lost_native_pool
from antifreeze.doctor.checks.shared_connection import shared_connection
from antifreeze.doctor.facts import Facts, Held, Loader, Obstacle, Outcome, Place, Raised, Trial
from antifreeze.doctor.finding import Weight
from antifreeze.doctor.handles import opener, own_name


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("dataset.dataset.archive", "self.archive = np.load(path)", "self.archive"),
        ("dataset.session.pool['a.b:80'].sock", "self.pool = {host: HTTPConnection(host)}", "self.pool"),
        ("dataset.files[3]", "", "self.files"),
        ("__main__._lock", "_lock = threading.Lock()", "_lock"),
        ("dataset.f", "if self.f == other.f: pass", "self.f"),
    ],
)
def test_a_handle_is_called_as_in_the_class_that_holds_it(path: str, text: str, name: str) -> None:
    assert own_name(path, Place("train.py", 3, text=text)) == name


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("an open tar archive 'zip.tar'", "tarfile.open(path)"),
        ("an open npz archive 'all.npz'", "numpy.load(path)"),
        ("an open file 'x.tar' (mode 'rb')", "open(path, 'rb')"),
        ("a _io.BufferedReader", "open(path, 'rb')"),
        ("a weakref.ReferenceType", None),
    ],
)
def test_a_thing_is_opened_by_its_own_library(what: str, call: str | None) -> None:
    assert opener(what) == call


def test_a_stream_that_fails_in_workers_and_was_read_further_without_them_blames_the_shared_connection() -> None:
    sock = Held(path="dataset.sock", kind="socket", what="an open socket", place=Place("train.py", 5))
    loader = Loader(number=0, num_workers=2, start_method="fork", is_iterable=True, held=(sock,))
    raised = Raised(type="BadStatusLine", message="…", stage="fetch", worker=0, sample="3")
    failed = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.ERROR, is_as_written=True, raised=raised)
    read = Trial(loader=0, engine="torch", workers=0, outcome=Outcome.SLOW, samples=8)
    (finding,) = shared_connection.examine(Facts(loaders=(loader,), trials=(failed, read)))
    assert finding.weight is Weight.LIKELY
    less = dataclasses.replace(read, samples=7)
    assert shared_connection.examine(Facts(loaders=(loader,), trials=(failed, less))) == []


def test_a_thread_that_nobody_holds_is_likely_to_be_missed_where_the_program_has_some() -> None:
    sick = fork_after_threads.sick
    lock = Obstacle(path="dataset.jobs.mutex", what="a lock", why="cannot pickle")
    loader = dataclasses.replace(sick.loaders[0], held=(), threads=("Thread-1 (_loop)",), obstacles=(lock,))
    (finding,) = fork_after_threads.examine(dataclasses.replace(sick, loaders=(loader,)))
    assert finding.weight is Weight.LIKELY
    assert not any("forkserver" in fix for fix in finding.fix)
    alone = dataclasses.replace(loader, threads=())
    (finding,) = fork_after_threads.examine(dataclasses.replace(sick, loaders=(alone,)))
    assert finding.weight is Weight.POSSIBLE


def test_what_our_engine_did_not_bring_to_an_end_is_not_sent_to_it() -> None:
    sick = fork_after_threads.sick
    (finding,) = fork_after_threads.examine(sick)
    assert finding.fix[0] == "antifreeze run {script}"
    (finding,) = fork_after_threads.examine(dataclasses.replace(sick, trials=sick.trials[:2]))
    assert not any("antifreeze run" in fix for fix in finding.fix)


def test_fewer_threads_are_not_advised_where_even_one_is_lost() -> None:
    (loader,) = lost_native_pool.sick.loaders
    pools = tuple(dataclasses.replace(pool, library="polars", kind="rayon") for pool in loader.pools)
    sick = dataclasses.replace(lost_native_pool.sick, loaders=(dataclasses.replace(loader, pools=pools),))
    (finding,) = lost_native_pool.examine(sick)
    assert not any("THREADS=1" in fix for fix in finding.fix)
