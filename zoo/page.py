"""What came of the cases, as lines for a terminal and as `docs/zoo.md`; nothing in the page is typed by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import indent

from zoo.results import COLUMNS, Diagnosis, Ending, Report, Row, from_json

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "zoo.md"
FIGURES = ROOT / "docs" / "zoo.json"
HEADLINE = f"   {'case':<40} {'torch':<12} {'antifreeze run':<28} diagnosis"
COMMANDS = {"torch": "python SCRIPT", "run": "antifreeze run SCRIPT", "doctor": "antifreeze doctor SCRIPT"}

TOP = """\
# The zoo

<!-- Written by `python -m zoo.score --page` from docs/zoo.json. Do not edit. -->

Small scripts that each show one way in which people's training hangs, crashes, crawls or goes wrong as soon as
`num_workers > 0`. Every one was reported in public; the links are the reports. The collection is not part of this
repository.

- **torch**: what stock torch does with the script. **`antifreeze run`**: what becomes of it on our engine, unmodified,
  with the flags it needs; *not survivable* are those whose own code is wrong, every time: no loader could mend them.
- **diagnosis**: what `antifreeze doctor` says about a copy without comments, called train.py. It is right if the true
  cause is named with all that belongs to it (attribute, file:line, sample), in at most a minute, and nothing else is rated
  *certain* or *likely*. What is true was [written down](../tests/zoo_expected.toml) before there was a check; what was
  put right later has a comment there.

```
make zoo                                   # all of it, about half an hour
make zoo SCORE="--only 07,fork-lock"       # some of it
make zoo SCORE="--columns doctor"          # the diagnosis alone
```
"""


def main(*, check: bool) -> int:
    """Write the page, or say whether it is as it would be written."""
    text = markdown(from_json(FIGURES.read_text()))
    if not check:
        PAGE.write_text(text)
        print(f"wrote {PAGE.relative_to(ROOT)}")
        return 0
    is_same = PAGE.is_file() and PAGE.read_text() == text
    print(
        f"{PAGE.relative_to(ROOT)} is " + ("up to date" if is_same else "not what --page would write"), file=sys.stderr
    )
    return 0 if is_same else 1


def terminal_line(row: Row) -> str:
    is_fine = row.is_survived and (row.doctor is None or row.doctor.is_right)
    torch = ending_text(row.torch)
    run = ending_text(row.run) + (f" ({row.flags})" if row.flags else "")
    return f"{'  ' if is_fine else '!!'} {row.id:<40} {torch:<12} {run:<28} {diagnosis_text(row.doctor, row.expected)}"


def ending_text(ending: Ending | None) -> str:
    if ending is None:
        return "–"
    outcome = "OK" if ending.outcome == "ok" else ending.outcome
    left = f", {ending.left} left" if ending.left else ""
    return outcome + (", by design" if ending.is_by_design else "") + left


def diagnosis_text(diagnosis: Diagnosis | None, expected: str) -> str:
    if diagnosis is None:
        return "–"
    weight = next((each["weight"] for each in diagnosis.findings if each["code"] == expected), "")
    right = f"{expected} {weight}, {diagnosis.seconds:.0f} s"
    return right if diagnosis.is_right else f"MISS, {diagnosis.seconds:.0f} s: {'; '.join(diagnosis.faults)}"


def miss(row: Row) -> str:
    """All that was said about a case that the doctor was not right about."""
    assert row.doctor is not None
    lines = [f"## {row.id}: {row.title}", "", *(f"- {fault}" for fault in row.doctor.faults), ""]
    for finding in row.doctor.findings:
        lines += [f"    {finding['code']} {finding['weight']}", indent(finding["text"], " " * 8), ""]
    return "\n".join(lines)


def summary(report: Report) -> str:
    """The sums of all columns."""
    parts = []
    if any(row.run is not None for row in report.rows):
        survivable = [row for row in report.rows if row.is_survivable]
        survived = sum(row.is_survived for row in survivable)
        parts.append(f"{survived} of {len(survivable)} survivable cases end well under `antifreeze run`")
    if report.diagnosed:
        right = sum(row.doctor is not None and row.doctor.is_right for row in report.diagnosed)
        parts.append(f"the diagnosis is right in {right} of {len(report.diagnosed)} ({report.share_right:.0%})")
    return "; ".join(parts)


def markdown(report: Report) -> str:
    """The whole page."""
    return "\n".join(
        [TOP, f"**{summary(report)}.**", "", *_circumstances(report), "", *_table(report), "", *_notes(report)]
    )


def _circumstances(report: Report) -> list[str]:
    return [f"- `{COMMANDS[column]}`: {_facts(report, column)}" for column in COLUMNS if column in report.made]


def _facts(report: Report, column: str) -> str:
    facts = report.made[column]
    engine = "" if column == "torch" else f"antifreeze at {facts.commit}, "
    return (
        f"{facts.date}, {engine}Python {facts.python}, torch {facts.torch}, {facts.cores} cores"
        f" ({facts.processor}), Linux {facts.kernel}; load before: {facts.load}"
    )


def _table(report: Report) -> list[str]:
    lines = ["| case | reports | torch | `antifreeze run` | diagnosis |", "|---|---|---|---|---|"]
    for row in report.rows:
        links = ", ".join(f"[{_short(source)}]({source})" for source in row.sources)
        run = ending_text(row.run)
        if row.run is not None and not row.is_survivable:
            run = f"not survivable: {run}"
        run += f", with `{row.flags}`" if row.flags else ""
        lines.append(
            f"| **{row.id[:3]}** {_escaped(row.title)} | {links} | {ending_text(row.torch)} | {run} | {_diagnosis(row)} |"
        )
    return lines


def _diagnosis(row: Row) -> str:
    text = _escaped(diagnosis_text(row.doctor, row.expected))
    return text if row.doctor is None or row.doctor.is_right else f"**{text}**"


def _notes(report: Report) -> list[str]:
    """How those ended under `antifreeze run` that did not end well."""
    lines = ["The last words of those that did not end well under `antifreeze run`:", ""]
    for row in report.rows:
        if row.run is not None and row.run.outcome != "ok":
            lines.append(f"- {row.id[:3]}: `{row.run.words.replace('`', '')}`")
    return [*lines, ""]


def _short(source: str) -> str:
    """`pytorch#5040` of a link to GitHub."""
    parts = source.split("/")
    return f"{parts[4]}#{parts[6]}" if "github.com" in source and len(parts) > 6 else parts[2]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
