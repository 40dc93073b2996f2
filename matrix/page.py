"""What follows from the rows: the page `docs/versions.md`, and the table of `torch_side/known.py`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from matrix.releases import in_order
from matrix.rows import Ratio, SuiteResult, VersionRow

BENCHMARKS = {"ints": "ints", "float32_38mb": "38 MB"}
"""The workloads that are measured, by their names in `benchmarks/`, and the heads of their columns."""

TOP = """\
# Which torch

<!-- Written by `python -m matrix --page` from docs/versions/. Do not edit. -->

antifreeze runs on torch 2.6 and later, on Linux. With an older torch, `import antifreeze` changes nothing and loaders run
on torch's own iterator. No list decides: the first loader on a torch that antifreeze does not know starts a
[self-check](drop-in.md#which-torch).

`make matrix` builds an environment for each release below, runs these in it, and deletes it; `make matrix TORCH=2.15.0`
does so for one release.

- **self-check**: a fresh one, without the table of known releases and without a kept result; and how long it took.
- **drop-in suite**: `tests/drop_in`, `tests/arena`, `tests/torch_side`: the batches are torch's, bit for bit.
- **fault suite**: `tests/processes`, `tests/supervise`, `tests/test_chaos.py`: workers that crash, hang, run out of memory
  or are killed are replaced, and nothing is left behind.
- **ints**, **38 MB**: how many times as fast as the same torch, with two workers: batches of 64 single ints, and batches of
  38 MB of float32. In brackets: the interval of the rounds. Few rounds, so that only large differences count;
  [benchmarks.md](benchmarks.md) has the exact figures.

The numbers are tests passed; *skipped* ones need what the machine or this torch does not have.
"""

NOT_RUN = "not run"


def page(rows: Sequence[VersionRow], releases: Sequence[str]) -> str:
    """The whole page; a release without a row is shown as not run."""
    known = {row.torch: row for row in rows}
    order = sorted({*known, *releases}, key=in_order, reverse=True)
    heads = ["torch", "self-check", "drop-in suite", "fault suite", *BENCHMARKS.values(), "Python", "date", "commit"]
    table = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for release in order:
        cells = _cells(known[release]) if release in known else [release, NOT_RUN, *[""] * (len(heads) - 2)]
        table.append(f"| {' | '.join(cells)} |")
    notes = [note for release in order if release in known for note in _notes(known[release])]
    if notes:
        notes = ["How each row was taken:", "", *notes, ""]
    return "\n".join([TOP, *table, "", *_failures([known[each] for each in order if each in known]), *notes])


def _cells(row: VersionRow) -> list[str]:
    where = [row.python, row.date, f"`{row.commit}`"]
    if row.problem is not None:
        return [row.torch, _in_cell(row.problem), "", "", *[""] * len(BENCHMARKS), *where]
    check = row.self_check
    checked = (
        "did not run" if check is None else f"passed, {check.seconds:.1f} s" if check.failed is None else "**failed**"
    )
    ratios = [_ratio(row.ratios.get(name)) for name in BENCHMARKS]
    return [check.build if check else row.torch, checked, _suite(row.drop_in), _suite(row.faults), *ratios, *where]


def _suite(suite: SuiteResult | None) -> str:
    if suite is None:
        return "did not run"
    failed = f", **{len(suite.failures)} failed**" if suite.failures else ""
    skipped = f", {suite.skipped} skipped" if suite.skipped else ""
    problem = f", **{_in_cell(suite.problem)}**" if suite.problem else ""
    return f"{suite.passed}{failed}{skipped}{problem}"


def _ratio(ratio: Ratio | None) -> str:
    return "–" if ratio is None else f"{ratio.median:.1f} × [{ratio.low:.1f}, {ratio.high:.1f}]"


def _in_cell(text: str) -> str:
    return text.replace("|", r"\|")


def _failures(rows: Sequence[VersionRow]) -> list[str]:
    lines = []
    for row in rows:
        if row.self_check is not None and row.self_check.failed is not None:
            lines.append(f"- {row.torch}, self-check: {row.self_check.failed}")
        for suite in (row.drop_in, row.faults):
            if suite is not None:
                lines += [f"- {row.torch}: `{name}`: `{text}`" for name, text in suite.failures.items()]
    return ["## What failed", "", *lines, ""] if lines else []


def _notes(row: VersionRow) -> list[str]:
    """How a row was taken."""
    which = "all tests" if row.is_whole else "without the tests that take long"
    which = which if row.drop_in is not None else "the self-check alone"
    return (
        [f"- {row.torch}: {which}; {row.cores} cores; load before it began: {row.load:g}."] if not row.problem else []
    )


def known_releases(rows: Sequence[VersionRow]) -> list[str]:
    """The releases that need no trial: those on which the self-check and both suites have passed."""
    return sorted((row.torch for row in rows if row.has_passed), key=in_order)


def known_source(source: str, releases: Sequence[str]) -> str:
    """The source of `torch_side/known.py` with these releases in its table."""
    names = ", ".join(f'"{release}"' for release in releases)
    table = f"KNOWN_TORCH = frozenset({{{names}}})" if releases else "KNOWN_TORCH: frozenset[str] = frozenset()"
    changed, count = re.subn(r"^KNOWN_TORCH\b.*$", table, source, flags=re.MULTILINE)
    if count != 1:
        raise ValueError("there is no line KNOWN_TORCH = … in known.py")
    return changed
