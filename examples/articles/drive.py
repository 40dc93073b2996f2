"""Run the articles' six examples on torch and on antifreeze, with every start method, and print what became of each.

    python examples/articles/drive.py                                   all 36 cells
    python examples/articles/drive.py --only pickling --column spawn    those whose names have a word in them
    python examples/articles/drive.py --write                           all and the experiments, and docs/articles.md
    python examples/articles/drive.py --statements                      runs nothing; writes what is said of each statement

Exit status 1 if a cell on antifreeze is not right: a sample missing or wrong, the error of freezing_2 without the
sample's index and `None`, a loader that fell back to torch, a process or file left behind. What torch does is reported,
not judged.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from cells import COLUMNS, EXAMPLES, TIME_LIMIT_S, run_cell
from experiments import EXPERIMENTS, run_experiment
from page import markdown, terminal_line
from statements import with_statements

PAGE = Path(__file__).resolve().parents[2] / "docs" / "articles.md"


def main() -> int:
    options = parse_options()
    if options.statements:
        PAGE.write_text(with_statements(PAGE.read_text()))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an ending that stops the cell under way, too
    chosen = [
        (example, column)
        for example in EXAMPLES
        for column in COLUMNS
        if contains_any(example.name, options.only) and has_all_words_of_any(column.title, options.column)
    ]
    if not chosen or (options.write and len(chosen) < len(EXAMPLES) * len(COLUMNS)):
        print("no such cell" if not chosen else "--write needs all cells", file=sys.stderr)
        return 2
    cells = []
    for example, column in chosen:
        cells.append(run_cell(example, column, time_limit_s=options.timeout))
        print(terminal_line(cells[-1]), flush=True)
    if options.write:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(markdown(cells, {name: run_experiment(name) for name in EXPERIMENTS}))
        print(f"wrote {PAGE}")
    faulty = [cell for cell in cells if cell.column.engine == "antifreeze" and cell.faults]
    for cell in faulty:
        print(f"not right: {cell.example.name}, {cell.column.title}: {'; '.join(cell.faults)}", file=sys.stderr)
    return 1 if faulty else 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="WORD", help="examples whose name contains WORD")
    parser.add_argument(
        "--column", action="append", metavar="WORD", help="columns with this engine or start method, or both"
    )
    parser.add_argument(
        "--timeout", type=float, default=TIME_LIMIT_S, metavar="S", help="seconds per cell (%(default)g)"
    )
    parser.add_argument("--write", action="store_true", help="write docs/articles.md")
    parser.add_argument("--statements", action="store_true", help="write only the statements in docs/articles.md anew")
    return parser.parse_args()


def contains_any(name: str, words: list[str] | None) -> bool:
    return not words or any(word in name for word in words)


def has_all_words_of_any(title: str, wanted: list[str] | None) -> bool:
    """`torch fork` is not `torch forkserver`."""
    return not wanted or any(set(words.split()) <= set(title.split()) for words in wanted)


if __name__ == "__main__":
    sys.exit(main())
