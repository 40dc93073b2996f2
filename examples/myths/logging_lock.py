"""Claim: a thread that logs while workers are forked leaves them a locked logging lock."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils.data import DataLoader, Dataset

from trying import outcome

OWN_LOCK = threading.Lock()


class Logs(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        logging.getLogger("myth").warning("sample %d", index)
        return index


class Locks(Logs):
    def __getitem__(self, index: int) -> int:
        with OWN_LOCK:
            return index


@contextmanager
def held_by_a_thread(lock: threading.Lock) -> Iterator[None]:
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            is_held.set()
            may_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    try:
        yield
    finally:
        may_go.set()
        thread.join()


def count(dataset: Dataset[int]) -> str:
    loader = DataLoader(dataset, num_workers=2, multiprocessing_context="fork")
    return f"{sum(len(batch) for batch in loader)} of 8 samples"


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr)
    match sys.argv[1:]:
        case ["logging"]:
            (stream,) = logging.getLogger().handlers
            # The module's own lock cannot be held at a fork: Python takes it first.
            with held_by_a_thread(stream.lock):  # type: ignore[arg-type]
                said = count(Logs())
            print(said)
        case ["own"]:
            with held_by_a_thread(OWN_LOCK):
                said = count(Locks())
            print(said)
        case _:
            print("logging's locks, held at the fork:", outcome(__file__, "logging"))
            print("a lock of your own, held at the fork:", outcome(__file__, "own"))
