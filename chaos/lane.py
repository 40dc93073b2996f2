"""A lane: a process that plays trials one after the other, as it is told on stdin; outcomes go to a descriptor."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

import torch

from chaos.faults import BY_NAME
from chaos.play import Mark, play
from chaos.trial import draw


def main(seed: int, outcomes: int, folder: Path) -> None:
    """Play until there is nothing more to play."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever runs us decides
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # workers are meant to crash
    torch.set_num_threads(1)
    own = folder / f"lane-{os.getpid()}"
    for name in ("tmp", "state", "trials"):
        (own / name).mkdir(parents=True)
    os.environ |= {"ANTIFREEZE": "require", "ANTIFREEZE_DIR": str(own / "state"), "TMPDIR": str(own / "tmp")}
    tempfile.tempdir = str(own / "tmp")  # other people's files are not ours
    mark = Mark()
    for line in sys.stdin:
        order = json.loads(line)
        number = order["trial"]
        kinds = [BY_NAME[name] for name in order["kinds"]]
        at = own / "trials" / str(number)
        at.mkdir()
        outcome = play(draw(seed, number, kinds=kinds), number, folder=at, mark=mark)
        os.write(outcomes, (json.dumps(outcome.as_json()) + "\n").encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
