"""`python -m differential.loaders.lane ENGINE FOLDER`: a lane that plays random loaders.

Each case is played in a process that is forked for it, so that nothing of one case is left in the next. Its trace lies in
the folder, as SEED.ENGINE, and what it wrote to stderr beside it.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import multiprocessing.util
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from differential.lanes import wait_program
from differential.loaders.case import draw_case
from differential.loaders.play import play


def main(engine: str, folder: Path) -> None:
    """Play until there is nothing more to play."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner decides
    # Without it, each worker of torch's forkserver imports torch itself, which is most of the time of such a case.
    multiprocessing.set_forkserver_preload(["torch", "numpy"])
    loader_class = class_of(engine)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _be_child(order, loader_class, folder / f"{order['seed']}.{engine}")
        sys.stdout.write(json.dumps({"status": wait_program(child, order["timeout_s"])}) + "\n")
        sys.stdout.flush()


def class_of(engine: str) -> type[DataLoader[Any]]:
    """The loader of an engine."""
    if engine == "torch":
        return DataLoader
    import antifreeze  # noqa: PLC0415  # not in the process that plays on torch

    return antifreeze.DataLoader


def _be_child(order: dict[str, Any], loader_class: type[DataLoader[Any]], at: Path) -> None:
    os.setpgid(0, 0)
    said = os.open(at.with_suffix(at.suffix + ".err"), os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(said, 2)
    os.dup2(said, 1)
    faulthandler.enable()
    status = 1
    try:
        trace = play(draw_case(order["seed"], order["method"]), loader_class)
        at.write_text(json.dumps(trace))
        status = 0
    except BaseException:  # the process must not go on as a second lane
        traceback.print_exc()
    finally:
        # What multiprocessing and the engine do at the end of a program, without the lane's own.
        multiprocessing.util._exit_function()
        os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
