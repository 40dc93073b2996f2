"""`import antifreeze` and the pure parts work where Linux is not."""

import subprocess
import sys

from test_architecture import PURE, SOURCES, module_name

BLOCKED = ("fcntl", "resource", "termios")
REMOVED = ("memfd_create", "pidfd_open")
BLOCK = f"""
import os, sys
for name in {BLOCKED}:
    sys.modules[name] = None  # importing it is an ImportError now
for name in {REMOVED}:
    vars(os).pop(name, None)
"""


def run(program: str) -> str:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=150, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_package_the_command_line_and_the_pure_parts_need_nothing_of_linux() -> None:
    pure = [module_name(path) for path in SOURCES if PURE.covers(path)]
    assert pure, "the list of pure files is out of date"
    names = ["antifreeze", "antifreeze.errors", "antifreeze.options", "antifreeze.cli.main", *pure]
    imports = "\n".join(f"import {name}" for name in names)
    assert run(f"{BLOCK}\n{imports}\nprint('ok')") == "ok\n"


def test_the_loader_can_be_imported_without_anything_of_linux() -> None:
    # torch first: what it needs is not our affair
    assert run(f"import torch\n{BLOCK}\nfrom antifreeze import DataLoader\nprint('ok')") == "ok\n"


def test_the_block_works() -> None:
    assert run(f"{BLOCK}\ntry:\n    import fcntl\nexcept ImportError:\n    print('blocked')") == "blocked\n"
