"""Thread pools of native libraries in workers: how many threads really work, counted by their processor time."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from drop_in.harness import Way
from processes.datasets import Numbers

pytestmark = [
    pytest.mark.usefixtures("not_for_torch"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nothing starts threads"),
]
TASKS = Path("/proc/self/task")
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")


def processor_times() -> dict[str, int]:
    """Nanoseconds that each thread of this process has had of a processor."""
    times = {}
    for task in TASKS.iterdir():
        try:
            times[task.name] = int((task / "schedstat").read_text().split()[0])
        except OSError:  # it has ended
            continue
    return times


def working_threads(work: Callable[[], Any]) -> int:
    """How many threads had a real part in this work; a pool that waits in a loop for a moment has none."""
    before = processor_times()
    work()
    spent = [now - before.get(name, 0) for name, now in processor_times().items()]
    return sum(ns > max(spent) / 5 for ns in spent)


def multiply() -> None:
    matrix = np.ones((700, 700))
    matrix @ matrix


def multiply_in_torch() -> None:
    matrix = torch.ones(700, 700)
    (matrix @ matrix).exp()


def blur() -> None:
    cv2: Any = importlib.import_module("cv2")
    picture = np.zeros((2000, 2000, 3), np.uint8)
    cv2.GaussianBlur(picture, (31, 31), 5)


def cluster() -> None:
    cluster: Any = importlib.import_module("sklearn.cluster")
    # Long enough: it tells OpenBLAS its number of threads, which starts them, and they wait in a loop for 30 ms.
    points = np.random.default_rng(0).random((200_000, 8))
    cluster.KMeans(8, n_init=1, max_iter=40, tol=0, init=points[:8]).fit(points)


def factorise() -> None:
    linalg: Any = importlib.import_module("scipy.linalg")
    linalg.lu(np.random.default_rng(0).random((700, 700)))


class Working(Numbers):
    """Each sample is the number of threads that worked for it."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(2)
        self.work = work

    def __getitem__(self, index: int) -> int:
        self.work()  # libraries load, and pools start
        return working_threads(self.work)


def counted(way: Way, work: Callable[[], None], **options: Any) -> set[int]:
    return {int(batch) for batch in way.make(Working(work), **options)}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("work", [multiply, multiply_in_torch, blur, cluster, factorise])
def test_in_a_worker_one_thread_works(way: Way, work: Callable[[], None]) -> None:
    assert counted(way, work) == {1}


class PoolOfPolars(Numbers):
    """Its own threads work while the main thread waits, so that they are counted by asking."""

    def __getitem__(self, index: int) -> int:
        polars: Any = importlib.import_module("polars")
        return int(polars.thread_pool_size())


def test_a_library_that_is_imported_in_the_worker_only_is_told(way: Way) -> None:
    assert {int(batch) for batch in way.make(PoolOfPolars(2))} == {1}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("work", [multiply, factorise, blur])
def test_without_a_limit_more_threads_work(way: Way, work: Callable[[], None]) -> None:
    assert max(counted(way, work, worker_threads=None)) > 1


def test_a_limit_above_one_is_kept_too(way: Way) -> None:
    assert max(counted(way, multiply, worker_threads=2)) == 2


@pytest.mark.long(but=1)
@pytest.mark.parametrize("work", [multiply, factorise])
def test_a_number_of_the_user_is_left_alone(
    way: Way, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert max(counted(way, work)) == 2


@pytest.mark.long(but=1)
def test_a_number_of_the_user_for_one_library_leaves_the_others_limited(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCV_FOR_THREADS_NUM", "2")
    assert max(counted(way, blur)) == 2
    assert counted(way, multiply) == {1}


class Told(Numbers):
    """What the environment says, here and to programs that are started; and torch's number."""

    def __getitem__(self, index: int) -> Any:
        script = "import os; print(os.environ.get('OMP_NUM_THREADS'))"
        printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        return str(os.environ.get("OMP_NUM_THREADS")), printed.strip(), torch.get_num_threads()


@pytest.mark.long(but=2)
@pytest.mark.parametrize(("limit", "printed"), [(1, "1"), (3, "3"), (None, "None")])
def test_the_environment_stays_the_users_and_torch_has_one_thread(way: Way, limit: int | None, printed: str) -> None:
    (told,) = way.make(Told(1), batch_size=None, num_workers=1, worker_threads=limit)
    assert tuple(told) == ("None", printed, 1)


POOL_LOST_IN_A_FORK = """
import os, signal, torch
from antifreeze.engine.worker.threads import end_openmp_pools

torch.set_num_threads(2)
use = lambda: torch.ones(2000, 2000).exp().sum().item()
before = use()
end_openmp_pools()
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0 if use() == before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert torch.get_num_threads() == 2 and use() == before
"""


def test_a_pool_of_openmp_that_was_ended_before_a_fork_can_be_used_after_it(run_script: Callable[..., Any]) -> None:
    pools = [pool for pool in ThreadpoolController().lib_controllers if pool.prefix == "libgomp"]
    if any(not hasattr(pool.dynlib, "omp_pause_resource_all") for pool in pools):
        pytest.skip("a libgomp here is older than OpenMP 5.0, and cannot end its threads (as that of torch 2.6)")
    run_script(POOL_LOST_IN_A_FORK).check()
