"""What the doctor is to run or read: a script, a module, or a loader in a module. Found without importing anything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from antifreeze.cli.run import MODULE, check_runnable
from antifreeze.errors import ConfigError

LAUNCHERS = ("torchrun", "accelerate", "deepspeed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A program that can be started."""

    command: tuple[str, ...]
    """The words that stand for it in a command of Python's: `train.py`, `-m package.train`; or `module:loader`."""
    file: Path | None
    """Where it is written; None: not below this directory."""
    base: Path
    """The directory that its files are named from."""

    @property
    def name(self) -> str:
        return " ".join(self.command)


def target_of(script: str | None, module: str | None) -> Target:
    """A script, or a module as in `python -m`; what cannot be run is refused."""
    if module is not None:
        return Target(command=(MODULE, module), file=_file_of(module), base=Path())
    assert script is not None
    if re.fullmatch(r"[\w.]+:[\w.]+", script) and not Path(script).exists():
        return Target(command=(script,), file=_file_of(script.partition(":")[0]), base=Path())
    check_runnable(Path(script))
    return Target(command=(script,), file=Path(script), base=Path(script).parent)


def _file_of(module: str) -> Path | None:
    inside = Path(*module.split("."))
    named = (inside.with_suffix(".py"), inside / "__main__.py", inside / "__init__.py")
    return next((file for file in named if file.is_file()), None)


def check_alone(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """A trial in one rank would wait for the others, which do something else."""
    world = environ.get("WORLD_SIZE", "1")
    is_launcher = Path(command[0]).name in LAUNCHERS or command[-1] == "torch.distributed.run"
    if not is_launcher and not (world.isdecimal() and int(world) > 1):
        return
    raise ConfigError(
        "the doctor examines a script in one process",
        where=" ".join(command) if is_launcher else f"WORLD_SIZE={world}, as torchrun sets it",
        why="it stops a script at its first batch, and the other ranks would wait for it for ever",
        try_="antifreeze doctor train.py, without torchrun; of a job that is frozen now: antifreeze doctor PID of a rank",
    )
