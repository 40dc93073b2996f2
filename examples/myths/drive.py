"""Run what shows each myth, and write what was seen to `docs/myths.md`.

    python examples/myths/drive.py                 print it
    python examples/myths/drive.py --only gc,none  those whose command has a word in it
    python examples/myths/drive.py --write         all of them, and docs/myths.md

Takes about six minutes: what hangs is waited for.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import sys
import time
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "myths.md"
MYTHS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "myths.toml").read_text())["myth"]
LIBRARIES = ("torch", "numpy", "opencv-python-headless", "h5py", "scikit-learn", "tokenizers")
LIMIT_S = 180.0

TOP = """\
# Myths

<!-- Written by `python examples/myths/drive.py --write`. Do not edit. -->

Much of the advice on loaders with workers is wrong, or was right for a version that nobody has any more. Each of these
claims can be tried: its command prints what stands under it here. antifreeze and its doctor rely on none of them.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORDS", help="those whose command has one of these words in it")
    parser.add_argument("--write", action="store_true", help="write docs/myths.md")
    options = parser.parse_args()
    words = [word for word in options.only.split(",") if word]
    if words and options.write:
        print("--write needs all of them", file=sys.stderr)
        return 2
    chosen = [myth for myth in MYTHS if not words or any(word in myth["command"] for word in words)]
    seen = []
    for myth in chosen:
        print(f"{myth['claim']}\n$ {myth['command']}", flush=True)
        seen.append(try_out(myth["command"]))
        print("  " + "\n  ".join(seen[-1]), flush=True)
    if options.write:
        PAGE.write_text(markdown(list(zip(chosen, seen, strict=True))))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


def try_out(command: str) -> list[str]:
    """What it prints."""
    python, *words = shlex.split(command)
    assert python == "python"
    # As a user has it: nobody has capped anything.
    environment = {name: value for name, value in os.environ.items() if "THREADS" not in name and name != "ANTIFREEZE"}
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return [line for line in ended.stdout.splitlines() if line.strip()]


def markdown(seen: list[tuple[dict[str, Any], list[str]]]) -> str:
    """The whole page."""
    lines = [TOP, f"Seen on {time.strftime('%Y-%m-%d')}: {versions()}.", "", "| claim | verdict |", "|---|---|"]
    lines += [f"| {myth['claim']} | {myth['verdict']} |" for myth, _ in seen]
    for myth, said in seen:
        lines += ["", f"## {myth['claim']}", "", f"**{myth['verdict'].capitalize()}.** {myth['truth']}", ""]
        lines += ["```", f"$ {myth['command']}", *said, "```", "", myth["antifreeze"]]
        if myth["zoo"]:
            lines[-1] += f" In [the zoo](zoo.md): {', '.join(myth['zoo'])}."
    return "\n".join(lines) + "\n"


def versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for library in LIBRARIES:
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            found.append(f"no {library}")
    return f"{', '.join(found)}, {platform.system()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main())
