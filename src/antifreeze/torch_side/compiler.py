"""`torch.compile` leaves our code to Python, as it leaves torch's loader.

A compiled function that loops over a loader calls us with the compiler switched on, and workers are forked with it on.
Compiling what we do there would take minutes for each epoch.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

RULES = "torch._dynamo.trace_rules"
"""The module that says what is compiled; torch imports it when something is to be compiled."""


def skip_our_code() -> None:
    """Have our files skipped, if the program compiles anything; what our code calls is compiled."""
    rules = sys.modules.get(RULES)
    if rules is not None:
        add_our_code(rules)


@functools.cache
def add_our_code(rules: Any) -> None:
    """Have this module, which is `RULES`, skip our files."""
    rules.add("antifreeze")
