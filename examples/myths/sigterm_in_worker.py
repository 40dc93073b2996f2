"""Claim: forked workers inherit my SIGTERM handler, and run my checkpoint code."""

import os
import signal
import tempfile
import time
from pathlib import Path

from torch.utils.data import DataLoader, Dataset, get_worker_info


class Slow(Dataset[int]):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        worker = get_worker_info()
        assert worker is not None
        Path(self.folder, f"worker-{worker.id}").write_text(str(os.getpid()))
        time.sleep(0.05)
        return index


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trainer = os.getpid()

        def save_checkpoint(*_: object) -> None:
            Path(folder, "checkpoint-of-trainer" if os.getpid() == trainer else "checkpoint-of-worker").touch()

        signal.signal(signal.SIGTERM, save_checkpoint)
        said = "training went on"
        try:
            for step, _ in enumerate(DataLoader(Slow(folder), num_workers=2, multiprocessing_context="fork")):
                if step == 4:
                    # From elsewhere, as a scheduler sends it: a worker ends in another way if its parent is the sender.
                    pid = Path(folder, "worker-0").read_text()
                    os.spawnvp(os.P_WAIT, "sh", ["sh", "-c", f"kill -TERM {pid}"])
        except RuntimeError as error:
            said = f"training ended: {error}"
        has_run = Path(folder, "checkpoint-of-worker").exists()
        print("the handler ran in the worker:", has_run)
        print(said)


if __name__ == "__main__":
    main()
