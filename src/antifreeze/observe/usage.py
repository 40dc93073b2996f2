"""Which loaders run on our engine, which do not, and why: one JSON line each, on request.

`ANTIFREEZE_USAGE=FILE` asks for it; tests, articles and zoo read it.
"""

from __future__ import annotations

import json
import os

from antifreeze.observe.say import say_once


def record(*, engine: str, stem: str | None, reason: str | None) -> None:
    """Note what carries a loader that starts now."""
    path = os.environ.get("ANTIFREEZE_USAGE")
    if not path:
        return
    line = json.dumps({"pid": os.getpid(), "engine": engine, "stem": stem, "reason": reason})
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:  # a file that cannot be written must not keep a loader from starting
        say_once(f"ANTIFREEZE_USAGE cannot be written: {error}")
