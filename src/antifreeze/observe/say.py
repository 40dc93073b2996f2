"""What the user is told while training: one line on stderr, once per thing.

Not through `warnings`: a program that turns warnings into errors must not stop because of us.
"""

from __future__ import annotations

import contextlib
import sys

_said: set[str] = set()


def say_once(text: str) -> None:
    """Tell the user, unless the same has been said before."""
    if text in _said:
        return
    _said.add(text)
    with contextlib.suppress(OSError, ValueError):  # stderr may be closed
        print(f"antifreeze: {text}", file=sys.stderr, flush=True)
