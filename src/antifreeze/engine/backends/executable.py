"""Whether this program's executable can be started again as a Python interpreter."""

from __future__ import annotations

import os
import re
import sys
from multiprocessing import spawn

_PYTHON = re.compile(r"python|pypy", re.IGNORECASE)


def why_no_fresh_process() -> str | None:
    """Why no fresh process can be started: the executable would run the program again; None if one can be."""
    if getattr(sys, "frozen", False):
        return (
            "this program is frozen (PyInstaller and the like): its executable is the program, not a Python interpreter"
        )
    executable = spawn.get_executable()
    if not executable:
        return "this program has Python embedded: there is no interpreter to start"
    names = {os.path.basename(path) for path in (os.fsdecode(executable), os.path.realpath(executable))}
    if not any(_PYTHON.search(os.fsdecode(name)) for name in names):
        return f"{os.fsdecode(executable)} is not a Python interpreter"
    return None
