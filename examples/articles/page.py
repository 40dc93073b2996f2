"""The table as text, and `docs/articles.md`: what the articles claim about their examples, beside what was seen.

Whatever is said about a run comes out of a `Cell`. The only fixed texts are the articles' own words and, as
`Claim.earlier`, observations on stock torch that were made elsewhere.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from cells import COLUMNS, EXAMPLES, Cell

Place = tuple[str, str]
"""An example's name and a column's title."""

ARTICLES = {
    "freezing": "Why does a PyTorch DataLoader freeze when using multiple workers?",
    "runtime_errors": "How do I resolve PyTorch runtime errors related to `num_workers`?",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """Words of an article, where to look in the table, and what was seen elsewhere."""

    words: str
    look_at: tuple[Place, ...]
    earlier: str = ""


FILE_READS, EXCEPTION, LOCK, SHARED_MEMORY, PICKLING, OPENCV = (example.name for example in EXAMPLES)

CLAIMS = {
    FILE_READS: (
        Claim(
            "Multiple workers concurrently attempting to open and read the same files will inevitably lead to conflicts"
            " and freezes.",
            ((FILE_READS, "torch fork"),),
            "2,000 full reads of one and the same file by 4 workers at once, each opening it: no conflict, no freeze."
            " Trouble comes from one shared *open file description*: a file opened before the workers were forked.",
        ),
    ),
    EXCEPTION: (
        Claim(
            "Returning `None` here propagates a silent failure and may corrupt batches.",
            ((EXCEPTION, "torch fork"), (EXCEPTION, "antifreeze fork"), (EXCEPTION, "antifreeze spawn")),
            "torch's message depends on the place: `found <class 'NoneType'>` if the None comes first in its batch,"
            " else `AttributeError: 'NoneType' object has no attribute 'numel'`. Neither says which sample it was.",
        ),
    ),
    LOCK: (
        Claim(
            "The lock ensures that only one worker process can access the file at a time, preventing race conditions"
            " and deadlocks.",
            ((LOCK, "torch fork"), (FILE_READS, "torch fork")),
        ),
    ),
    SHARED_MEMORY: (
        Claim(
            "If the `size` is sufficiently large or the number of `num_workers` is too high, the system can exhaust"
            " shared memory.",
            ((SHARED_MEMORY, "torch fork"), (SHARED_MEMORY, "torch spawn")),
            "torch puts each tensor of a batch into `/dev/shm`: what is under way (workers, prefetch, batch size) and"
            " what the user keeps must fit.",
        ),
        Claim(
            "you'll likely encounter an `OSError` indicating a lack of space.",
            (),
            "with a `/dev/shm` of 32 or 64 MB: `RuntimeError: unable to allocate shared memory(shm) … No space left on"
            " device`; with a custom `collate_fn` the error is only printed and the main process waits for ever.",
        ),
    ),
    PICKLING: (
        Claim(
            "The error will not show up immediately, but during the worker process initialization.",
            ((PICKLING, "torch fork"), (PICKLING, "torch spawn")),
        ),
        Claim(
            "In these situations, the error messages will generally be a `PicklingError` of some kind.",
            ((PICKLING, "torch spawn"),),
        ),
    ),
    OPENCV: (
        Claim(
            "creating the potential for interference with multi-threading libraries in OpenCV and potentially causing"
            " segmentation faults.",
            ((OPENCV, "torch fork"),),
            "with opencv-python-headless 5.0.0.93: cvtColor, resize, GaussianBlur, warpAffine and medianBlur on images"
            " of 2000 by 2000, in the main process and then in workers: no hang.",
        ),
        Claim(
            "Setting the `OPENCV_OPENMP_NUM_THREADS` environment variable to `1` disables OpenCV's multi-threading,"
            " preventing conflicts.",
            (),
            "it has no effect: `cv2.getNumThreads()` stays as it was; `OPENCV_FOR_THREADS_NUM=1` has one.",
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
    line = f"{cell.example.name:<31} {cell.column.title:<16} {cell_text(cell)}"
    if cell.column.engine == "antifreeze":
        line += f" · {engine_text(cell)}"
    return line + (f"\n{'':>48} {cell.last_words}" if cell.last_words else "")


def markdown(cells: Sequence[Cell]) -> str:
    """The whole page."""
    at = {(cell.example.name, cell.column.title): cell for cell in cells}
    lines = [
        "# The articles' six examples",
        "",
        "Generated by `python examples/articles/drive.py --write`; not edited by hand.",
        f"Python {platform.python_version()}, torch {version('torch')}, {platform.system()}, {os.cpu_count()} cores.",
        "",
        "`examples/articles/` holds the examples with every line of the articles kept, and a marked driver around",
        "them that makes the files and the loader where the article has none, and compares every sample that arrives.",
        'No script has an `if __name__ == "__main__"` guard: the articles write none. The same files ran in all four',
        "columns, with 4 workers. Spawned workers of torch import the script again; where the guard is missing they start",
        "over instead of loading, and say so with the words “bootstrapping phase”.",
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
    lines += ["", "## What the articles say about them, and what was seen", ""]
    lines += ["*Here* is the table above. *Earlier* are observations on stock torch 2.13.0 with Python 3.11 on Linux."]
    for example in EXAMPLES:
        lines += ["", f"### `{example.name}`", "", f"From *{article_of(example.name)}*", ""]
        for claim in CLAIMS[example.name]:
            lines.append(f"> {claim.words}")
            lines.append("")
            lines += [seen_here(at[place]) for place in claim.look_at]
            lines += [f"- Earlier: {claim.earlier}"] if claim.earlier else []
            lines.append("")
        lines.pop()
    return "\n".join(lines) + "\n"


def seen_here(cell: Cell) -> str:
    words = f": `{cell.last_words}`" if cell.last_words else ""
    return f"- Here: `{cell.example.name}`, {cell.column.title}: {cell_text(cell)}{words}"


def article_of(example_name: str) -> str:
    return next(title for prefix, title in ARTICLES.items() if example_name.startswith(prefix))
