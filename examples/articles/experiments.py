"""Small experiments on claims of the articles that their own examples do not settle: `python experiments.py NAME …`.

Each runs on stock torch, takes seconds, and prints one line that `page.py` quotes. `small-shm` needs to mount a `/dev/shm`
of its own, which some machines do not permit; it says so then.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).resolve().parent
LIMIT_S = 60.0
SMALL_SHM = 'unshare --map-root-user --mount sh -c \'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$0" "$@"\''


class Reads(Dataset[int]):
    """1 if a block of a file is not what was written there."""

    blocks, size = 256, 4096

    def __init__(self, path: str, *, keep_open: bool) -> None:
        self.path = path
        self.file = open(path, "rb", buffering=0) if keep_open else None  # noqa: SIM115 - shared on purpose

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> int:
        block = index % self.blocks
        file = self.file or open(self.path, "rb", buffering=0)  # noqa: SIM115 - closed when it goes
        file.seek(block * self.size)
        time.sleep(0.0005)  # as those who look at a header first compute in between
        return int(file.read(self.size) != bytes([block]) * self.size)


def count_wrong(*, keep_open: bool) -> tuple[int, int, float]:
    """Wrong reads, reads, seconds: four forked workers on one file, opened by each of them or once for all."""
    with tempfile.NamedTemporaryFile() as file:
        for block in range(Reads.blocks):
            file.write(bytes([block]) * Reads.size)
        file.flush()
        dataset = Reads(file.name, keep_open=keep_open)
        start = time.perf_counter()
        loader = DataLoader(dataset, batch_size=20, num_workers=4, multiprocessing_context="fork")
        wrong = int(sum(batch.sum() for batch in loader))
        return wrong, len(dataset), time.perf_counter() - start


def same_file() -> str:
    wrong, count, seconds = count_wrong(keep_open=False)
    return f"4 workers, each opening the same file: {wrong} of {count} reads wrong, no freeze, {seconds:.1f} s"


def shared_file() -> str:
    wrong, count, _ = count_wrong(keep_open=True)
    return f"4 workers with one file that was opened before they were forked: {wrong} of {count} reads wrong"


class SlowReads(Dataset[int]):
    """Every read waits for 5 ms, as for a disk in the network."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        if self.lock is None:
            time.sleep(0.005)
        else:
            with self.lock:
                time.sleep(0.005)
        return index


def lock() -> str:
    def seconds(workers: int, lock: Any) -> float:
        loader = DataLoader(SlowReads(lock), batch_size=10, num_workers=workers, multiprocessing_context="fork")
        start = time.perf_counter()
        for _ in loader:
            pass
        return time.perf_counter() - start

    one, locked, free = seconds(1, None), seconds(4, multiprocessing.Lock()), seconds(4, None)
    return f"400 reads of 5 ms: 1 worker {one:.1f} s, 4 workers with the lock {locked:.1f} s, 4 without it {free:.1f} s"


def opencv_variable() -> str:
    def threads(**variables: str) -> str:
        command = [sys.executable, "-c", "import cv2; print(cv2.getNumThreads())"]
        environment = {name: value for name, value in os.environ.items() if "THREADS" not in name}
        ended = subprocess.run(
            command, env=environment | variables, capture_output=True, text=True, timeout=LIMIT_S, check=True
        )
        return ended.stdout.strip()

    return (
        f"cv2.getNumThreads(): {threads()} by itself, {threads(OPENCV_OPENMP_NUM_THREADS='1')} with"
        f" OPENCV_OPENMP_NUM_THREADS=1, {threads(OPENCV_FOR_THREADS_NUM='1')} with OPENCV_FOR_THREADS_NUM=1"
    )


class Blurs(Dataset[int]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        blur()
        return index


def blur() -> None:
    import cv2
    import numpy as np

    image = np.full((1000, 1000, 3), 7, dtype=np.uint8)
    for operation in (lambda: cv2.cvtColor(image, cv2.COLOR_BGR2RGB), lambda: cv2.GaussianBlur(image, (21, 21), 3)):
        operation()
    cv2.resize(image, (500, 500))
    cv2.medianBlur(image, 5)


def opencv_fork() -> str:
    import cv2

    cv2.setNumThreads(4)
    blur()  # its threads are running now
    loader = DataLoader(Blurs(), batch_size=2, num_workers=4, multiprocessing_context="fork", timeout=LIMIT_S / 2)
    count = sum(len(batch) for batch in loader)
    return (
        f"OpenCV {cv2.__version__}, 4 threads in the main process, then in 4 workers: {count} of 16 samples, no fault"
    )


def small_shm() -> str:
    def last_line(*launcher: str) -> str:
        script = str(HERE / "runtime_errors_1_shared_memory.py")
        command = f"{SMALL_SHM} {' '.join([sys.executable, *launcher, script])}"
        try:
            ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return "hangs"
        lines = [line for line in (ended.stderr if ended.returncode else ended.stdout).splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit status {ended.returncode}"

    return f"64 MB of /dev/shm: torch: “{last_line()}”; antifreeze: “{last_line('-m', 'antifreeze', 'run')}”"


EXPERIMENTS: dict[str, Callable[[], str]] = {
    "same-file": same_file,
    "shared-file": shared_file,
    "lock": lock,
    "small-shm": small_shm,
    "opencv-variable": opencv_variable,
    "opencv-fork": opencv_fork,
}


def run_experiment(name: str) -> str:
    """Its line, from a process of its own; what went wrong if it did."""
    try:
        ended = subprocess.run(
            [sys.executable, __file__, name], capture_output=True, text=True, timeout=3 * LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "did not end"
    lines = [line for line in (ended.stdout or ended.stderr).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"exit status {ended.returncode}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in sys.argv[1:] or EXPERIMENTS:
        print(EXPERIMENTS[each](), flush=True)
