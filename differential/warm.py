"""`python -m differential.warm`: a lane that runs scripts, each in a fork of a process that has imported torch.

The fork becomes `python SCRIPT METHOD` as far as a script can tell: its module is `__main__`, and what it raises, its exit
status and what runs at its end are left to the interpreter. On our engine the lane is started by `antifreeze run`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

import numpy  # noqa: F401, ICN001  # so that each script does not have to
import torch.utils.data  # noqa: F401

from differential.lanes import wait_program


def serve() -> dict[str, Any] | None:
    """Fork for each order. Returns the order in the fork that is to carry it out, and None when there are no more."""
    answers = os.dup(1)
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(answers)
            return order
        status = wait_program(child, order["timeout_s"])
        try:
            os.write(answers, (json.dumps({"status": status}) + "\n").encode())
        except BrokenPipeError:  # the runner was killed
            return None
    return None


def become(order: dict[str, Any]) -> ModuleType:
    """Make this process what `python SCRIPT METHOD` would be, and return the empty main module."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in enumerate((os.devnull, order["stdout"], order["stderr"])):
        opened = os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)
    os.chdir(order["folder"])
    sys.argv = [order["script"], order["method"]]
    sys.path[0] = order["folder"]
    path = os.path.join(order["folder"], order["script"])
    main = ModuleType("__main__")
    main.__file__, main.__spec__, main.__loader__ = path, None, SourceFileLoader("__main__", path)
    sys.modules["__main__"] = main
    return main


if __name__ == "__main__" and (wanted := serve()) is not None:
    module = become(wanted)
    exec(compile(open(module.__file__).read(), module.__file__, "exec"), module.__dict__)
