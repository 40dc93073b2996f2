"""The table as text, and `docs/articles.md`: what the articles claim about their examples, beside what was seen.

Whatever is said about a run comes out of a `Cell` or an experiment. Fixed texts are the articles' own words, our verdict on
them and, as `Claim.earlier`, observations on stock torch that were made elsewhere.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from cells import COLUMNS, EXAMPLES, Cell
from statements import ARTICLES, statements_table

Place = tuple[str, str]
"""An example's name and a column's title."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Words of an article, what we make of them, and what shows it."""

    words: str
    verdict: str
    look_at: tuple[Place, ...] = ()
    """Cells of the table."""
    experiments: tuple[str, ...] = ()
    """Of `experiments.py`."""
    earlier: str = ""
    """Seen elsewhere."""
    commands: tuple[str, ...] = ()
    """What else shows it."""


FILE_READS, EXCEPTION, LOCK, SHARED_MEMORY, PICKLING, OPENCV = (example.name for example in EXAMPLES)


def with_each_method(example: str, engine: str) -> tuple[Place, ...]:
    return tuple((example, column.title) for column in COLUMNS if column.engine == engine)


CLAIMS = {
    FILE_READS: (
        Claim(
            "Multiple workers concurrently attempting to open and read the same files will inevitably lead to conflicts"
            " and freezes.",
            "Not so. Workers that open a file themselves do not disturb each other. What does go wrong is one open file"
            " in all workers, opened before they were forked: they move each other's position in it.",
            ((FILE_READS, "torch fork"),),
            ("same-file", "shared-file"),
        ),
        Claim(
            "A worker might try to acquire a lock on a resource that another worker already holds, resulting in an"
            " indefinite wait – hence the freeze.",
            "Not here: reading a file takes no lock, and nothing in the example does. Locks do freeze workers in two"
            " other ways: one that a thread of the trainer held when a worker was forked, and one whose holder died.",
            ((FILE_READS, "torch fork"), (LOCK, "torch fork")),
        ),
    ),
    EXCEPTION: (
        Claim(
            "If an exception occurs in a worker process, it might not be properly handled, leading to the entire"
            " DataLoader freezing.",
            "Not in this way: torch raises a worker's exception in the training loop. It freezes if the exception or the"
            " sample cannot be pickled, which the example's can.",
            ((EXCEPTION, "torch fork"),),
        ),
        Claim(
            "Returning `None` here propagates a silent failure and may corrupt batches.",
            "Half true: it is not silent, for a `None` cannot be collated; but torch's error does not say which sample it"
            " was, nor why.",
            ((EXCEPTION, "torch fork"), *with_each_method(EXCEPTION, "antifreeze")),
            earlier="torch's message depends on the place: `found <class 'NoneType'>` if the None comes first in its batch,"
            " else `AttributeError: 'NoneType' object has no attribute 'numel'`. Neither says which sample it was.",
        ),
    ),
    LOCK: (
        Claim(
            "The lock ensures that only one worker process can access the file at a time, preventing race conditions"
            " and deadlocks.",
            "There is nothing to prevent, and the lock costs what workers are for: four of them are as slow as one.",
            ((LOCK, "torch fork"), (FILE_READS, "torch fork")),
            ("lock",),
        ),
    ),
    SHARED_MEMORY: (
        Claim(
            "The default mechanism for this is through shared memory, with each worker receiving a copy of the dataset and"
            " operating independently.",
            "Two things in one: *batches* come back through shared memory. The *dataset* does not travel through it: with"
            " fork workers see the trainer's, copied page by page as they touch Python objects; with spawn and"
            " forkserver each gets a pickled copy of its own. On antifreeze it is there once.",
            commands=('make bench BENCH="--only texts_2m,array_1gib_spawn --engines torch,antifreeze"',),
        ),
        Claim(
            "Operating systems limit the amount of shared memory available, either explicitly (e.g., with `shmmax` on"
            " Linux) or implicitly.",
            "The limit that torch meets is the size of `/dev/shm`; `shmmax` is for another kind of shared memory, which it"
            " does not use. antifreeze meets neither.",
            experiments=("small-shm",),
        ),
        Claim(
            "If the `size` is sufficiently large or the number of `num_workers` is too high, the system can exhaust"
            " shared memory.",
            "Half true: `size`, the length of the dataset, has no part in it. What counts is what is under way: batch"
            " size, workers and `prefetch_factor`, and the batches that are kept.",
            with_each_method(SHARED_MEMORY, "torch"),
            ("small-shm",),
        ),
        Claim(
            "you'll likely encounter an `OSError` indicating a lack of space.",
            "The words are right, the type is not: torch raises a `RuntimeError`.",
            experiments=("small-shm",),
            earlier="with a custom `collate_fn` the error is only printed in the worker, and the main process waits for"
            " ever.",
        ),
        Claim(
            "To resolve, the dataset should not load all the data at initialization time; consider loading data lazily.",
            "No cure: batches are as large as before, and they are what fills `/dev/shm`. On antifreeze the example passes"
            " with 64 MB of it, and with all its 400 MB loaded at initialization.",
            with_each_method(SHARED_MEMORY, "antifreeze"),
            ("small-shm",),
        ),
    ),
    PICKLING: (
        Claim(
            "The data loading logic is passed to each worker process via Python's pickle module.",
            "With spawn and forkserver; with fork, torch's default on Linux before Python 3.14, nothing is pickled, and the"
            " example works.",
            with_each_method(PICKLING, "torch"),
        ),
        Claim(
            "The error will not show up immediately, but during the worker process initialization.",
            "It comes when the loop begins, in the main process, before the worker runs; with fork never.",
            with_each_method(PICKLING, "torch"),
        ),
        Claim(
            "In these situations, the error messages will generally be a `PicklingError` of some kind.",
            "For a lambda it is an `AttributeError` on this Python.",
            ((PICKLING, "torch spawn"), (PICKLING, "torch forkserver")),
        ),
        Claim(
            "Replace the lambda with a standard class or function.",
            "That helps with torch, if the script has a main guard as well. On antifreeze the lambda may stay.",
            with_each_method(PICKLING, "antifreeze"),
        ),
    ),
    OPENCV: (
        Claim(
            "creating the potential for interference with multi-threading libraries in OpenCV and potentially causing"
            " segmentation faults.",
            "Not seen: no fault and no hang, with OpenCV's threads at work in the main process before and in the workers"
            " after.",
            ((OPENCV, "torch fork"),),
            ("opencv-fork",),
        ),
        Claim(
            "Setting the `OPENCV_OPENMP_NUM_THREADS` environment variable to `1` disables OpenCV's multi-threading,"
            " preventing conflicts.",
            "Not so: the variable does nothing. `OPENCV_FOR_THREADS_NUM=1` does, and so does `cv2.setNumThreads(1)`.",
            experiments=("opencv-variable",),
        ),
    ),
}


def cell_text(cell: Cell) -> str:
    """What happened in a cell, in a few words."""
    seconds = f"{cell.ending.seconds:.0f} s"
    if cell.outcome in ("hang", "slow"):
        return f"{cell.outcome}, stopped after {seconds}"
    if cell.samples is not None:
        return f"{cell.outcome}, {cell.samples[0]} of {cell.samples[1]} right, {seconds}"
    if cell.example.ends_in_error and cell.delivered:
        return f"error that names sample and None, {seconds}"
    return f"{cell.outcome}, {seconds}"


def engine_text(cell: Cell) -> str:
    """Which engine the iterators of a cell ran on."""
    ours = [use for use in cell.ending.usage if use.engine == "antifreeze"]
    others = [use for use in cell.ending.usage if use.engine != "antifreeze"]
    stems = ", ".join(sorted({use.stem or "no" for use in ours}))
    text = f"{len(ours)} on our engine ({stems} stem)" if ours else "0 on our engine"
    reasons = "; ".join(sorted({use.reason or "no reason given" for use in others}))
    return f"{text}, {len(others)} fallen back" + (f": {reasons}" if others else "")


def terminal_line(cell: Cell) -> str:
    line = f"{cell.example.name:<31} {cell.column.title:<21} {cell_text(cell)}"
    if cell.column.engine == "antifreeze":
        line += f" · {engine_text(cell)}"
    return line + (f"\n{'':>53} {cell.last_words}" if cell.last_words else "")


def markdown(cells: Sequence[Cell], seen: Mapping[str, str]) -> str:
    """The whole page; `seen` is what each experiment said."""
    at = {(cell.example.name, cell.column.title): cell for cell in cells}
    lines = [
        "# The two articles",
        "",
        "Two well-known articles tell people how to help themselves when a loader with workers hangs or fails. Here are",
        "their six examples, run; then every statement that they make, and what is true of it.",
        "",
        "Generated by `python examples/articles/drive.py --write`; not edited by hand.",
        f"Python {platform.python_version()}, torch {version('torch')}, {platform.system()}, {os.cpu_count()} cores.",
        "",
        "`examples/articles/` holds the examples with every line of the articles kept, and a marked driver around",
        "them that makes the files and the loader where the article has none, and compares every sample that arrives.",
        'No script has an `if __name__ == "__main__"` guard: the articles write none. The same files ran in all',
        "columns, with 4 workers. Workers that torch spawns, or forks from its server, import the script again; where the",
        "guard is missing they start over instead of loading, and say so with the words “bootstrapping phase”.",
        "",
        "| example | " + " | ".join(column.title for column in COLUMNS) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    for example in EXAMPLES:
        row = (cell_text(at[example.name, column.title]) for column in COLUMNS)
        lines.append(f"| `{example.name}` | " + " | ".join(row) + " |")
    lines += ["", "How those ended that did not end well, or were meant to end in an error:", ""]
    for cell in cells:
        if cell.outcome != "ok":
            lines.append(f"- `{cell.example.name}`, {cell.column.title}: {cell.outcome}: `{cell.last_words}`")
    lines += ["", "Which engine the loaders of the antifreeze columns ran on (`ANTIFREEZE=require`), per `iter()`:", ""]
    for cell in cells:
        if cell.column.engine == "antifreeze":
            faults = f"; **not right: {'; '.join(cell.faults)}**" if cell.faults else ""
            lines.append(f"- `{cell.example.name}`, {cell.column.title}: {engine_text(cell)}{faults}")
    lines += ["", *statements_table()]
    lines += ["", "## What was seen of the claims about the examples", ""]
    lines += [
        "*Here* is the table above, *tried* an experiment of `examples/articles/experiments.py`, both from this run;",
        "*earlier* are observations on stock torch 2.13.0 with Python 3.11 on Linux. The commands show it again.",
    ]
    for example in EXAMPLES:
        lines += ["", f"### `{example.name}`", "", f"From *{article_of(example.name)}*"]
        for claim in CLAIMS[example.name]:
            lines += ["", f"> {claim.words}", "", f"**{claim.verdict}**", ""]
            lines += [seen_here(at[place]) for place in claim.look_at]
            lines += [f"- Tried: {seen[name]}" for name in claim.experiments]
            lines += [f"- Earlier: {claim.earlier}"] if claim.earlier else []
            lines += [f"- `{command}`" for command in commands_of(claim)]
            if lines[-1] == "":
                lines.pop()
    return "\n".join(lines) + "\n"


def commands_of(claim: Claim) -> list[str]:
    """What to type to see it."""
    words: dict[str, list[str]] = {}
    for example, column in claim.look_at:
        words.setdefault(example, []).append(f"--column '{column}'")
    commands = [
        f"python examples/articles/drive.py --only {example} {' '.join(columns)}" for example, columns in words.items()
    ]
    if claim.experiments:
        commands.append(f"python examples/articles/experiments.py {' '.join(claim.experiments)}")
    return [*commands, *claim.commands]


def seen_here(cell: Cell) -> str:
    words = f": `{cell.last_words}`" if cell.last_words else ""
    return f"- Here: `{cell.example.name}`, {cell.column.title}: {cell_text(cell)}{words}"


def article_of(example_name: str) -> str:
    return next(title for prefix, title in ARTICLES.items() if example_name.startswith(prefix))
