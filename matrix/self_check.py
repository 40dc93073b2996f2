"""The self-check of antifreeze, as a program: `python self_check.py` prints its result as JSON.

Runs in the environment that is examined, with an empty cache folder. The table of known releases does not count.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from antifreeze.iterator import Iterator
from antifreeze.torch_side import known, self_check


def main() -> int:
    known.KNOWN_TORCH = frozenset()  # type: ignore[misc]
    began = time.perf_counter()
    failed = self_check.why_unfit(Iterator, may_fork=True)
    seconds = time.perf_counter() - began
    print(json.dumps({"build": torch.__version__, "failed": failed, "seconds": round(seconds, 2)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
