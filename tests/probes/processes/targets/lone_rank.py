"""Freezes: rank 0 has come to the barrier, and rank 1 reads its input."""

import os
import sys
from pathlib import Path

import torch.distributed as dist


def work():
    dist.barrier()


def type_something():
    sys.stdin.readline()


if __name__ == "__main__":
    dist.init_process_group("gloo", init_method="env://")
    if os.environ["RANK"] == "0":
        Path("frozen").touch()
        work()
    else:
        type_something()
