"""Writes `docs/reliability.md` from `docs/reliability.json`; nothing in it is typed by hand."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Sequence

from chaos.faults import KINDS, Point
from chaos.judge import Outcome
from chaos.report import ROOT, Report, read
from chaos.trial import MOST_FAULTS

PAGE = ROOT / "docs" / "reliability.md"
FIGURES = ROOT / "docs" / "reliability.json"
GOAL_S = 0.1

TOP = """\
# Reliability

<!-- Written by `python -m chaos --page` from docs/reliability.json. Do not edit. -->

`make chaos` puts real workers to real faults and compares every batch, bit for bit, with what torch's own `DataLoader`
gives when nothing happens: a map-style dataset that draws from `torch`, `random`, `numpy` and three generators of its own,
batches of many shapes, one to four workers, from grown and from clean stems, kept or new for every epoch. All of it is
drawn from a seed. A fault counts if the ledger shows that it hit.

```
make chaos                                      # another seed each time, until 10,000 have hit, 100 of each kind
make chaos CHAOS="--seed 7 --faults 2000"       # fewer
make chaos CHAOS="--seed 7 --trial 12"          # one of them alone
```
"""

# Of runs that say which kinds were played; those before had one kind of program, and all that it needs.
PROGRAMS = """
The program keeps batches or views of them, shares them, pickles them, takes them from several threads, or runs a signal
handler all the time; a third of the trials have few descriptors, few processes or little memory; rare batches are a
thousand times larger; a tenth of the trials have no fault. *Changed* is what the program kept of a batch and found altered
later. *Out of memory*: the worker allocates until the kernel ends it, in a control group of its own. Limits of memory and
processes are control groups, too; where they cannot be made, these trials are played without them.
"""

BOTTOM = f"""
- A *trial* is one or two epochs under up to {MOST_FAULTS} faults. *Lost* and *repeated* are batches; *wrong* ones differ
  from torch's or come out of order; *raised* trials ended in an error, *hung* ones did not end in time; *leaks* are
  processes, threads, descriptors, shared memory and temporary files that were there when all was over.
- Kinds are drawn uniformly, then one of the points that the kind can strike at. *Starting* is `worker_init_fn`; *writing*
  is a `__reduce__` of the user's while the batch goes into its slot; *sending*, *just sent* and *idle* are struck from a
  hook on the worker's own calls; *any moment* by a timer of the kernel's, which sends the signal.
- A worker that is stuck in `worker_init_fn` is reported, but not replaced: not part of this.
- SIGSEGV is a read from address 0, SIGBUS a read beyond the end of a mapped file; the GIL is held in C by a wait for a
  mutex that never comes free.
- With the stem or the clean base a worker is killed, too: nobody misses them otherwise.
- Two faults of a trial never strike at the same batch: a second end at the same place is no accident, and is raised.
- The time from SIGKILL to the replacement at work is taken by the two workers themselves: by one just before it kills
  itself, by the other when it has started and waits for work.
"""


def table(report: Report) -> str:
    """The figures as Markdown."""
    hits = Counter(hit for outcome in report.outcomes for hit in outcome.hits)
    kinds = [kind for kind in KINDS if kind.name in report.kinds or (not report.kinds and kind.needs is None)]
    points = [point for point in Point if any(hits[kind.name, point] for kind in kinds)]
    lines = [
        f"| fault | {' | '.join(points)} | all |",
        f"|---|{'--:|' * (len(points) + 1)}",
    ]
    for kind in kinds:
        row = [hits[kind.name, point] for point in points]
        cells = " | ".join(str(count) if point in kind.points else "" for count, point in zip(row, points, strict=True))
        lines.append(f"| {kind.name} | {cells} | {sum(row)} |")
    sums = [sum(hits[kind.name, point] for kind in kinds) for point in points]
    lines.append(f"| **all** | {' | '.join(map(str, sums))} | **{sum(sums)}** |")
    return "\n".join([*lines, "", _results(report), "", _times(report)])


def _results(report: Report) -> str:
    outcomes = report.outcomes
    figures = {
        "trials": len(outcomes),
        "without faults": sum(not (outcome.hits or outcome.missed) for outcome in outcomes),
        "faults that hit": sum(len(outcome.hits) for outcome in outcomes),
        "faults that hit nothing": sum(outcome.missed for outcome in outcomes),
        "lost": sum(outcome.compared.lost for outcome in outcomes),
        "repeated": sum(outcome.compared.repeated for outcome in outcomes),
        "wrong": sum(outcome.compared.wrong for outcome in outcomes),
        "changed": sum(outcome.compared.changed for outcome in outcomes),
        "raised": sum(bool(outcome.raised) for outcome in outcomes),
        "hung": sum(bool(outcome.hang) for outcome in outcomes),
        "leaks": sum(len(outcome.leaks) for outcome in outcomes),
    }
    if not report.kinds:
        del figures["without faults"], figures["changed"]
    head, values = " | ".join(figures), " | ".join(map(str, figures.values()))
    return f"| {head} |\n|{'--:|' * len(figures)}\n| {values} |"


def _times(report: Report) -> str:
    lines = ["| from SIGKILL to the replacement at work | SIGKILLs | median | p90 |", "|---|--:|--:|--:|"]
    lines.append(_times_row(f"among all the others, {report.jobs} trials at a time", report.outcomes))
    if report.quiet:
        lines.append(_times_row(f"with nothing else going on (goal: {GOAL_S * 1000:.0f} ms)", report.quiet))
    return "\n".join(lines)


def _times_row(title: str, outcomes: Sequence[Outcome]) -> str:
    times = sorted(seconds for outcome in outcomes for seconds in outcome.back_s)
    if not times:
        return f"| {title} | 0 | – | – |"
    p90 = times[min(len(times) - 1, round(0.9 * (len(times) - 1)))]
    return f"| {title} | {len(times)} | {statistics.median(times) * 1000:.0f} ms | {p90 * 1000:.0f} ms |"


def text(report: Report) -> str:
    """The whole page."""
    facts = report.facts
    where = (
        f"Taken on {facts.date}, seed {report.seed}, {report.seconds // 60} minutes: {facts.processor}, "
        f"{facts.cores} cores, {facts.memory_gib} GiB, Linux {facts.kernel};\nPython {facts.python}, torch {facts.torch}, "
        f"antifreeze at {facts.commit}; load: {facts.load:g}."
    )
    return "\n".join([TOP, where, *([PROGRAMS] if report.kinds else [""]), table(report), BOTTOM])


def main(*, check: bool) -> int:
    """Write the page, or say whether it is what would be written."""
    page = text(read(FIGURES))
    if not check:
        PAGE.write_text(page)
        return 0
    is_same = PAGE.exists() and PAGE.read_text() == page
    if not is_same:
        sys.stderr.write(f"{PAGE} is not what --page would write\n")
    return 0 if is_same else 1
