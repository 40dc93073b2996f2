"""What the user is told while training, on stderr: each thing once, or with a count, and always in one write.

Not through `warnings`: a program that turns warnings into errors must not stop because of us. A stderr that is closed,
full or somebody's own object loses what we say, and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Hashable

# So many of a kind are told in full; after that only every power of ten.
MOST_IN_FULL = 3

_said: set[str] = set()
_counts: Counter[Hashable] = Counter()


def say(text: str) -> None:
    """Tell the user."""
    _write(f"antifreeze: {text}\n")


def say_once(text: str) -> None:
    """Tell the user, unless the same has been said before."""
    if text not in _said:
        _said.add(text)
        say(text)


def say_counted(key: Hashable, text: str) -> None:
    """Tell the user of one more of a kind: the first few in full, then the tenth, the hundredth and so on."""
    _counts[key] += 1
    count = _counts[key]
    if count <= MOST_IN_FULL:
        _write(f"antifreeze: {text}\n")
    elif _is_power_of_ten(count):
        _write(f"antifreeze: {text} (x{count} so far)\n")


def say_report(text: str) -> None:
    """Tell the user with a report of several lines; of a distributed job only rank 0 speaks, the others keep a file."""
    whole = text.rstrip("\n") + "\n"
    if is_rank_zero():
        _write(whole)
        return
    from antifreeze.observe import files  # noqa: PLC0415 - it needs this file, to say where it cannot write

    files.write_stacks("report.txt", whole)


def is_rank_zero() -> bool:
    """Whether this process is the one of a distributed job that speaks, or is alone."""
    return os.environ.get("RANK", "").strip() in ("", "0")


def _is_power_of_ten(count: int) -> bool:
    return str(count).rstrip("0") == "1"


def _write(text: str) -> None:
    try:
        stream = sys.stderr
        if getattr(stream, "isatty", bool)():
            text = f"\n{text}"  # the cursor may stand at the end of a progress bar
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except Exception:  # stderr may be closed, None, or whatever the user's program has put in its place
        return
