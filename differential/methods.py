"""Start methods of workers, and which one a random loader gets."""

from __future__ import annotations

import random

METHODS = ("fork", "spawn", "forkserver")
# Most are forked: a spawned worker of torch's takes two seconds to start.
SHARES = (8, 1, 1)


def draw_method(seed: int) -> str:
    """The start method of the loader of this seed, unless one is asked for."""
    return random.Random(seed).choices(METHODS, SHARES)[0]
