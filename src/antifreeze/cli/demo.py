"""`antifreeze demo`: the engine at work, in under a minute, without data and without a GPU.

Everything shown is measured while you look. A claim that turns out false is named, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antifreeze.probes.bounded import ProgramResult, run_bounded

if TYPE_CHECKING:  # rich takes a tenth of a second, and `antifreeze run` does not need it
    from rich.console import Console
    from rich.table import Table

LAST_LINE = "now yours: antifreeze run train.py"

SCRIPTS = Path(__file__).resolve().parents[1] / "demo"
ARTICLE = SCRIPTS / "lambda_transform.py"
THROUGHPUT = SCRIPTS / "throughput.py"
SICK = SCRIPTS / "thread_pool.py"
PROBLEM = "AF101"

PATIENCE_WITH_TORCH_S = 6.0
TIMEOUT_S = 40.0
# The doctor's own limit is a minute.
TIMEOUT_OF_DOCTOR_S = 90.0
ARTICLE_SAMPLES = 100


@dataclass(frozen=True, slots=True)
class Engine:
    """What a script is given to."""

    command: tuple[str, ...]
    mode: str
    """Value of ANTIFREEZE: ours must not quietly be torch's, and torch's must not be ours."""

    def run(self, *words: str, timeout_s: float = TIMEOUT_S) -> ProgramResult:
        return run_bounded(
            [*self.command, *words], timeout_s=timeout_s, environ={**os.environ, "ANTIFREEZE": self.mode}
        )


TORCH = Engine((sys.executable,), mode="0")
OURS = Engine((sys.executable, "-m", "antifreeze", "run"), mode="require")
DOCTOR = Engine((sys.executable, "-m", "antifreeze", "doctor"), mode="1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo has no options."""


def execute(_arguments: argparse.Namespace) -> int:
    from rich.console import Console

    console = Console(highlight=False)
    failures = 0
    for show in (show_article_on_torch, show_article_on_ours, show_side_by_side, show_doctor):
        for wrong in show(console):
            say(console, f"✗ {wrong}", style="bold red")
            failures += 1
        console.print()
    if failures:
        console.print(f"this demo failed: {failures} of its claims did not hold, see ✗", style="bold red")
        return 1
    console.print(LAST_LINE, style="bold")
    return 0


# Each part shows one thing and returns what was not as it should be, in words.


def show_article_on_torch(console: Console) -> list[str]:
    headline(console, "1  An article's example on torch, with the start method spawn")
    say(console, f"the script  {ARTICLE}")
    say(console, "its crux    self.transform = lambda x: x * random.random()")
    with console.status("python lambda_transform.py spawn"):
        outcome = TORCH.run(str(ARTICLE), "spawn", timeout_s=PATIENCE_WITH_TORCH_S)
    say(console, "$ python lambda_transform.py spawn")
    if outcome.exit_status == 0:
        return ["torch was expected to fail on the article's example with spawn, and did not"]
    if outcome.exit_status is None:
        say(console, f"not a batch within {outcome.seconds:.0f} s: stopped", style="red")
    else:
        say(console, outcome.last_words, style="red")
        say(console, f"failed after {outcome.seconds:.1f} s", style="red")
    return []


def show_article_on_ours(console: Console) -> list[str]:
    headline(console, "2  The same file on antifreeze, next to torch with fork")
    with console.status("antifreeze run lambda_transform.py spawn"):
        torchs, ours = TORCH.run(str(ARTICLE), "fork"), OURS.run(str(ARTICLE), "spawn")
    if wrong := [*unfinished("torch with fork", torchs), *unfinished("antifreeze with spawn", ours)]:
        return wrong
    expected, arrived = results(torchs)[0], results(ours)[0]
    say(console, "$ python lambda_transform.py fork")
    say(console, "$ antifreeze run lambda_transform.py spawn")
    table = table_of("", "samples", "batches", "checksum", "seconds")
    table.add_row("torch, fork", *cells(expected), f"{torchs.seconds:.1f}")
    table.add_row("antifreeze, spawn", *cells(arrived), f"{ours.seconds:.1f}")
    console.print(table)
    if arrived != expected or arrived["samples"] != ARTICLE_SAMPLES:
        return [f"the article's example should give {expected} on antifreeze and gave {arrived}"]
    say(console, "identical: every sample, in order, random factors included", style="green")
    return []


def show_side_by_side(console: Console) -> list[str]:
    headline(console, "3  Two workloads on both: 2 workers, every tensor copied by the consumer")
    say(console, "$ python throughput.py")
    say(console, "$ antifreeze run throughput.py")
    with console.status("batches per second, torch, then antifreeze"):
        torchs, ours = TORCH.run(str(THROUGHPUT)), OURS.run(str(THROUGHPUT))
    if wrong := [*unfinished("throughput on torch", torchs), *unfinished("throughput on antifreeze", ours)]:
        return wrong
    table = table_of("batches per second", "torch", "antifreeze", "ratio", "batches")
    for theirs, mine in zip(results(torchs), results(ours), strict=True):
        is_identical = theirs["checksum"] == mine["checksum"]
        if not is_identical:
            wrong.append(f"{mine['workload']}: the batches differ from torch's")
        rates = theirs["batches_per_s"], mine["batches_per_s"]
        table.add_row(
            mine["workload"],
            *(f"{rate:.0f}" for rate in rates),
            f"{rates[1] / rates[0]:.1f}×",
            "identical" if is_identical else "DIFFERENT",
        )
    console.print(table)
    return wrong


def show_doctor(console: Console) -> list[str]:
    headline(console, "4  A script that hangs on torch, and the doctor")
    say(console, f"the script  {SICK}")
    say(console, f"$ antifreeze doctor {SICK.name}")
    # What is installed is not the target's own, and the doctor would look past it.
    with console.status(f"antifreeze doctor {SICK.name}"), tempfile.TemporaryDirectory(prefix="antifreeze-") as folder:
        outcome = DOCTOR.run(shutil.copy(SICK, folder), timeout_s=TIMEOUT_OF_DOCTOR_S)
    said = outcome.stdout.replace(f"{folder}{os.sep}", "").splitlines()
    for line in said:
        say(console, line)
    is_named = any(line.startswith(PROBLEM) and "certain" in line for line in said)
    if outcome.exit_status != 1 or not is_named or not any(f"{SICK.name}:" in line for line in said):
        return [f"the doctor was expected to name {PROBLEM} and its line: {outcome.last_words}"]
    return []


def unfinished(name: str, outcome: ProgramResult) -> list[str]:
    if outcome.exit_status is None:
        return [f"{name}: still running after {outcome.seconds:.0f} s, stopped"]
    if outcome.exit_status != 0:
        return [f"{name}: {outcome.last_words}"]
    return []


def results(outcome: ProgramResult) -> list[dict[str, Any]]:
    """What a script of ours printed: one JSON object per line."""
    return [json.loads(line) for line in outcome.stdout.splitlines() if line.startswith("{")]


def cells(result: dict[str, Any]) -> list[str]:
    return [str(result[column]) for column in ("samples", "batches", "checksum")]


def headline(console: Console, text: str) -> None:
    console.print(text, style="bold")


def say(console: Console, text: str, *, style: str | None = None) -> None:
    console.print(f"   {text}", style=style, markup=False, soft_wrap=True)


def table_of(first: str, *others: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 3))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table
