"""Which loaders run on our engine, which do not, and why: one JSON line each, on request.

`ANTIFREEZE_USAGE=FILE` asks for it; tests, articles and zoo read it.
"""

from __future__ import annotations

import json
import os


def record(*, engine: str, stem: str | None, reason: str | None) -> None:
    """Note what carries a loader that starts now."""
    path = os.environ.get("ANTIFREEZE_USAGE")
    if not path:
        return
    line = json.dumps({"pid": os.getpid(), "engine": engine, "stem": stem, "reason": reason})
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")
