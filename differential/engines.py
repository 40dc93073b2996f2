"""The two engines, and the environment in which programs run on them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENGINES = ("torch", "ours")


def environment(engine: str, folder: Path) -> dict[str, str]:
    """The variables of a program that runs on an engine; `folder` is for what the engine itself writes.

    `ANTIFREEZE=require` makes an error of a loader that falls back to torch's iterator: it would be no comparison.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTIFREEZE", "PYTHON"))}
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    common = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    ours = {"ANTIFREEZE": "require", "ANTIFREEZE_DIR": str(folder)}
    return kept | common | (ours if engine == "ours" else {})


def launcher(engine: str) -> list[str]:
    """What stands before the name of a script."""
    return [sys.executable] if engine == "torch" else [sys.executable, "-m", "antifreeze", "run"]
