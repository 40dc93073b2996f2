"""Claim: a thread that logs while workers are forked leaves them a locked logging lock."""

import logging
import sys
import threading
import time

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


def held_for_three_seconds(*locks: threading.Lock) -> None:
    is_held = threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        is_held.set()
        time.sleep(3)
        for lock in locks:
            lock.release()

    threading.Thread(target=hold).start()
    is_held.wait()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr)
    start = time.perf_counter()
    match sys.argv[1:]:
        case ["logging"]:
            (stream,) = logging.getLogger().handlers
            held_for_three_seconds(stream.lock, logging._lock)  # type: ignore[attr-defined, arg-type]
            count = sum(len(batch) for batch in DataLoader(Logs(), num_workers=2, multiprocessing_context="fork"))
            print(f"{count} of 8 samples, {time.perf_counter() - start:.1f} s")
        case ["own"]:
            held_for_three_seconds(OWN_LOCK)
            count = sum(len(batch) for batch in DataLoader(Locks(), num_workers=2, multiprocessing_context="fork"))
            print(f"{count} of 8 samples")
        case _:
            print("logging's locks, held at the fork:", outcome(__file__, "logging"))
            print("a lock of your own, held at the fork:", outcome(__file__, "own"))
