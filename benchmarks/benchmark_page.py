"""Writes `docs/benchmarks.md` and its charts from the JSON files in `docs/benchmarks/`: `make bench-page`.

Nothing in the page is typed by hand: what is said of an engine stands in `engines.py`, every number in the JSON files. With
`--check` nothing is written, and the exit status says whether the page is what would be written.
"""

from __future__ import annotations

import argparse
import io
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engines import ENGINES, INLINE, OURS, PEERS, TORCH
from judge import Result, quantity
from report import ROOT, Report, read
from workloads import ENOUGH_ROUNDS, EVEN, MANY_CORES, QUIET_LOAD

PAGE = ROOT / "docs" / "benchmarks.md"
FOLDER = ROOT / "docs" / "benchmarks"

FIGURE_WORDS = {
    "rate": "",
    "first_batch": "to the first batch",
    "next_epoch": "to the next epoch",
    "next_epoch_kept": "to the next epoch, workers kept",
    "cycle": "a pass of each",
    "memory": "memory beside the trainer",
    "growth": "memory at the end of an epoch, to that at its beginning",
    "send": "to what another process can open",
    "receive": "from that to the dicts",
}
COLUMNS = (*PEERS, INLINE)
# Readable on white and on black; text too.
COLOURS = {
    OURS: "#2f81f7",
    "torchdata": "#d29922",
    "spdl": "#3fb950",
    "grain": "#a371f7",
    INLINE: "#8b949e",
}
INK = "#7d8590"

TOP = """\
# Benchmarks

<!-- Written by `make bench-page` from docs/benchmarks/*.json. Do not edit. -->

antifreeze beside torch's `DataLoader` and its peers, in the same run. Ratios are to torch's `DataLoader` and above 1
where an engine is better: more batches per second, fewer seconds, less memory. In brackets: an interval that holds the true
median with 95 %.

```
make bench                                                              # this machine, 2 workers, about 25 minutes
.venv/bin/python benchmarks/run.py --workers 4 --json 4-workers.json    # any machine, every reading kept
.venv/bin/python benchmarks/run.py --only ints,jpeg --engines torch,antifreeze --json 4-workers.json --workers 4
.venv/bin/python benchmarks/run.py --self-test                          # torch against torch, which must come out even
```
"""

BOTTOM = f"""\
## How it is measured

- One reading, one process, which plays the trainer: forked from a server that has imported torch and started no thread,
  it imports its engine, builds its dataset and measures. All engines start from the same state; nothing is left from the
  reading before.
- A round is one reading of every engine: torch and antifreeze right after each other and in turning order, then the
  others, each time beginning with the next one. A ratio is formed within a round. Reported is the median of
  {ENOUGH_ROUNDS} or more.
- The same `num_workers`, `prefetch_factor` and threads for all: one thread in each worker, torch's own number in the
  trainer.
- The consumer copies every tensor of every batch into memory that it has already, as a step on another device would.
- *Rates* leave out start and end: four windows of batches (`num_workers` × `prefetch_factor`) are taken before the clock
  runs, and the loader still has work when it stops. *First batch* counts from making the loader; the dataset is there and
  the engine is imported. *Next epoch* counts from asking for more after the last batch. Both with epochs of a few batches
  from a dataset of full size.
- Every reading is checked: the first window of batches must have torch's bytes, and the last batch that was timed must be
  what the dataset and the collate function make of its indices in the trainer. antifreeze must have noted itself that it,
  and not torch's iterator, carried the loader.
- *Iterable datasets* share out blocks of samples by `get_worker_info()`; a block is as long as a batch, so that the
  batches are those of the map-style row with the same samples.
- *Memory* is that of all processes but the trainer: PSS of all that is not shared memory, and all shared memory, counted
  once and whole, touched or not. A bare worker is one that torch spawned for a dataset of integers.
- *Growth* is the memory of all processes, the trainer among them, two windows before the end of an epoch, divided by
  that two windows after its beginning. Workers read in random order: torch's a plain list, whose every page is written to
  when an object in it is read, ours the same texts in `antifreeze.packed`.
- The way to a clean stem is timed without a loader, in one process and in CPU time: our crossing, and in torch's place
  `pickle.dumps` (protocol 5) and `pickle.loads` of the same dataset.
- Goals depend on the machine: the higher floors hold from {MANY_CORES} usable cores on. A figure without a goal is only
  reported, and marked when its median is below {EVEN:g}.

## How each engine is set up

"""

END = """
## What is not measured

- Accelerators: no `pin_memory`, no copies to a device, no training step. The consumer only copies; a slower one hides
  more of every loader. `benchmarks/pinned.py` measures pinned batches on their way to a device, where there is one.
- Disks and networks: data comes from memory, waiting is a sleep.
- Shuffling, samplers of one's own, more than one trainer on a machine.
- Peers at what they do beyond a map-style dataset with worker processes: SPDL's threads and its own decoders, Grain's
  transformations and formats, the checkpoints of `StatefulDataLoader`.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if the page is not up to date")
    check = parser.parse_args().check
    files = files_for(reports_in(FOLDER))
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is not what {FOLDER.relative_to(ROOT)}/*.json says: make bench-page")
        else:
            path.write_text(files[path])
            print(f"written: {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


def reports_in(folder: Path) -> dict[str, Report]:
    """By the name of their file; small machines first."""
    reports = {path.stem: read(path) for path in folder.glob("*.json")}
    return dict(sorted(reports.items(), key=lambda each: (each[1].facts.cores, each[1].facts.workers, each[0])))


def files_for(reports: Mapping[str, Report]) -> dict[Path, str]:
    charts = {FOLDER / f"{name}.svg": chart(report) for name, report in reports.items()}
    return {PAGE: page(reports), **charts}


def page(reports: Mapping[str, Report]) -> str:
    sections = [section(name, report) for name, report in reports.items()]
    if not sections:
        sections = ["No figures have been taken yet.\n"]
    engines = [f"- **{ENGINES[name].title}**: {ENGINES[name].how}\n" for name in (TORCH, OURS, *PEERS, INLINE)]
    return "\n".join([TOP, *sections, BOTTOM]) + "".join(engines) + END


def section(name: str, report: Report) -> str:
    facts = report.facts
    packages = ", ".join(f"{package} {version}" for package, version in facts.versions.items())
    loads = ", ".join(f"{call.load:g}" for call in report.calls)
    rounds = ", ".join(sorted({str(call.pairs) for call in report.calls}))
    lines = [
        f"## {facts.cores} cores, {facts.workers} workers",
        "",
        f"Taken on {report.calls[-1].at[:10]}: {facts.processor}, {facts.memory_gib} GiB, Linux {facts.kernel};",
        f"Python {facts.python}, {packages};",
        f"antifreeze at {facts.commit}; `prefetch_factor` {facts.prefetch_factor}; {rounds} rounds; load before: {loads}.",
        *caveats(report),
        "",
        f"![Ratios to torch, {facts.cores} cores, {facts.workers} workers](benchmarks/{name}.svg)",
        "",
        *table(report.results),
        "",
        *footnotes(report.results),
        "### Where we lose",
        "",
        *(losses(report.results) or ["Nowhere in this run."]),
        "",
    ]
    return "\n".join(lines)


def caveats(report: Report) -> Iterator[str]:
    """What makes figures worth less than they look."""
    if any(call.pairs < ENOUGH_ROUNDS for call in report.calls):
        yield f"**Fewer than {ENOUGH_ROUNDS} rounds: a trial, not a measurement.**"
    if any(call.load > QUIET_LOAD for call in report.calls):
        yield "**Others were using the machine: distrust a near miss.**"
    if report.facts.is_self_test:
        yield "**A self-test: torch against torch.**"


def table(results: Sequence[Result]) -> Iterator[str]:
    titles = " | ".join(ENGINES[name].title for name in COLUMNS)
    yield f"| workload | torch | antifreeze | ratio | goal | {titles} |"
    yield "|---|--:|--:|--:|---|" + "--:|" * len(COLUMNS)
    for result in results:
        values = [value_of(result, name) for name in (TORCH, OURS)]
        ratio = ratio_of(result, OURS, with_interval=True)
        others = [ratio_of(result, name) for name in COLUMNS]
        yield "| " + " | ".join([title_of(result), *values, f"**{ratio}**", goal_of(result), *others]) + " |"


def title_of(result: Result) -> str:
    words = FIGURE_WORDS[result.figure]
    return f"{result.title}: {words}" if words else result.title


def value_of(result: Result, name: str) -> str:
    return quantity(result.figure, result.seen[name].median) if name in result.seen else "–"


def ratio_of(result: Result, name: str, *, with_interval: bool = False) -> str:
    seen = result.seen.get(name)
    if seen is None or seen.ratio is None:
        return "–"
    return str(seen.ratio) if with_interval else f"{seen.ratio.median:.2f} ×"


def goal_of(result: Result) -> str:
    if result.verdict.passed is None:
        return "slower than torch" if result.verdict.is_slower else ""
    return f"{result.verdict.goal}: {'met' if result.verdict.passed else '**missed**'}"


def footnotes(results: Sequence[Result]) -> Iterator[str]:
    """Why there is a dash in the table, and what else a reader must know: each said once, with where it holds."""
    places: dict[str, dict[str, None]] = {}
    for result in results:
        reasons = [f"{ENGINES[name].title}: {reason}" for name, reason in result.absent.items()]
        for text in (*reasons, *result.notes):
            places.setdefault(text, {})[result.title] = None
    if places:
        yield from (f"- {text} ({'; '.join(titles)})." for text, titles in places.items())
        yield ""


def losses(results: Sequence[Result]) -> list[str]:
    """Wherever torch, a peer or no workers at all is better than we are."""
    lines = []
    for result in results:
        ours = result.seen.get(OURS)
        if ours is None or ours.ratio is None:
            continue
        better = [TORCH] if result.verdict.is_slower else []
        for name in COLUMNS:
            seen = result.seen.get(name)
            if seen is not None and seen.ratio is not None and ours.ratio.median < EVEN * seen.ratio.median:
                better.append(name)
        if better:
            who = ", ".join(f"{ENGINES[name].title} {value_of(result, name)}" for name in better)
            lines.append(f"- {title_of(result)}: ours {value_of(result, OURS)}; {who}.")
    return lines


def chart(report: Report) -> str:
    """Ratios to torch as bars from 1, on a logarithmic axis, with their intervals."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    style = {
        "svg.hashsalt": "antifreeze",  # the same input gives the same file
        "svg.fonttype": "none",
        "font.size": 9,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(9, height_in(report.results)), layout="constrained")
        draw(axes, report.results)
        title = f"{report.facts.cores} cores, {report.facts.workers} workers: times as good as torch's DataLoader"
        figure.legend(ncols=len(COLOURS), loc="outside upper center", frameon=False, title=title)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return file.getvalue()


def height_in(results: Sequence[Result]) -> float:
    return 1.2 + 0.17 * sum(places_of(result) + 1 for result in results)


def places_of(result: Result) -> int:
    return max(len(bars_of(result)), 2)  # two lines of text


def bars_of(result: Result) -> list[str]:
    return [name for name in (OURS, *COLUMNS) if name in result.seen and result.seen[name].ratio is not None]


def draw(axes: Any, results: Sequence[Result]) -> None:
    place, ticks, labels = 0.0, [], []
    for result in results:
        names = bars_of(result)
        for number, name in enumerate(names):
            draw_bar(axes, result, name, place + number)
        ticks.append(place + (len(names) - 1) / 2)
        labels.append(textwrap.fill(title_of(result), 36))
        place += places_of(result) + 1
    axes.set_yticks(ticks, labels)
    axes.set_ylim(place - 0.5, -1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g} ×")
    axes.axvline(1, color=INK, linewidth=1)
    axes.tick_params(left=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    for name, colour in COLOURS.items():
        if any(name in bars_of(result) for result in results):
            axes.barh(0, 0, left=1, color=colour, label=ENGINES[name].title)


def draw_bar(axes: Any, result: Result, name: str, place: float) -> None:
    ratio = result.seen[name].ratio
    assert ratio is not None
    axes.barh(place, ratio.median - 1, left=1, height=0.85, color=COLOURS[name])
    axes.plot([ratio.low, ratio.high], [place, place], color=INK, linewidth=1, marker="|", markersize=4)
    axes.annotate(
        f"{ratio.median:.2f}" if ratio.median < 10 else f"{ratio.median:.0f}",
        (max(ratio.high, 1.0), place),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=6.5,
        fontweight="bold" if name == OURS else "normal",
    )


if __name__ == "__main__":
    sys.exit(main())
