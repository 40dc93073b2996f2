"""`python -m zoo.score`: every case of the zoo on torch, under `antifreeze run`, and before the doctor.

    python -m zoo.score                            all cases, all columns
    python -m zoo.score --only 07,shm,fork-handle  some of them
    python -m zoo.score --columns doctor           the diagnosis alone
    python -m zoo.score --json docs/zoo.json --reuse docs/zoo.json --columns doctor
                                                   the other columns as they were then
    python -m zoo.score --page                     docs/zoo.md from docs/zoo.json
    python -m zoo.score --healthy                  the doctor on scripts that are well

Cases run one after the other: some measure time, and all of them use more than one core. Some need root, for a `/dev/shm`
of their own.

Exit status: 0 if the doctor is right in 90 % of the cases and all that can be survived is; 1 if not, or if a healthy script
is called sick; 2 if there is no zoo.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chaos.report import facts_of_this_machine

from zoo import page
from zoo.cases import Zoo
from zoo.healthy import SCRIPTS, check_up
from zoo.judge import read_expected
from zoo.results import COLUMNS, GOAL, Report, Row, from_json, to_json

ROOT = Path(__file__).resolve().parents[1]
EXPECTED = ROOT / "tests" / "zoo_expected.toml"


def main(words: Sequence[str] | None = None) -> int:
    wanted = _parse(words)
    if wanted.page or wanted.check:
        return page.main(check=wanted.check)
    if wanted.healthy:
        return score_healthy(wanted.only)
    if not (wanted.zoo / "drive.py").is_file():
        print(f"zoo: there is no {wanted.zoo}/drive.py; say where it is: make zoo ZOO=path/to/zoo", file=sys.stderr)
        return 2
    return score_zoo(wanted)


def score_zoo(wanted: argparse.Namespace) -> int:
    """Run the cases, say what came of them; the exit status."""
    earlier = from_json(wanted.reuse.read_text()) if wanted.reuse else Report(())
    zoo = Zoo(wanted.zoo, read_expected(EXPECTED.read_text()))
    report = Report((), dict.fromkeys(wanted.columns, facts_of_this_machine()))
    print(page.HEADLINE, flush=True)
    for case in zoo.cases(wanted.only):
        row = try_case(zoo, case, wanted.columns)
        report = replace(report, rows=(*report.rows, row))
        print(page.terminal_line(Report((row,), report.made).with_columns_of(earlier).rows[0]), flush=True)
        if wanted.verbose and row.doctor is not None and not row.doctor.is_right:
            print(page.miss(row), flush=True)
    report = report.with_columns_of(earlier)
    print(page.summary(report))
    if wanted.json:
        wanted.json.parent.mkdir(parents=True, exist_ok=True)
        wanted.json.write_text(to_json(report))
    is_right = not report.diagnosed or report.share_right >= GOAL
    return 0 if is_right and all(row.is_survived for row in report.rows) else 1


def try_case(zoo: Zoo, case: str, columns: Sequence[str]) -> Row:
    return replace(
        zoo.row(case),
        torch=zoo.on_torch(case) if "torch" in columns else None,
        run=zoo.under_run(case) if "run" in columns else None,
        doctor=zoo.before_doctor(case) if "doctor" in columns else None,
    )


def score_healthy(words: Sequence[str]) -> int:
    """Ask the doctor about all that is well; the exit status."""
    scripts = [script for script in SCRIPTS if not words or any(word in script.stem for word in words)]
    checkups = []
    for script in scripts:
        checkups.append(check_up(script))
        print(checkups[-1], flush=True)
        for finding in checkups[-1].alarms:
            print("     " + finding.text.replace("\n", "\n     "), flush=True)
    fine = sum(checkup.is_fine for checkup in checkups)
    print(f"{fine} of {len(checkups)} healthy scripts are called healthy")
    return 0 if fine == len(checkups) else 1


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m zoo.score", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--zoo", type=Path, default=ROOT.parent / "shared" / "zoo", help="where the cases are")
    parser.add_argument("--only", type=_words, default=(), metavar="WORDS", help="numbers, classes or parts of names")
    parser.add_argument("--columns", type=_columns, default=COLUMNS, help="some of torch,run,doctor")
    parser.add_argument("--reuse", type=Path, metavar="FILE", help="columns that are not run are taken from there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was seen there")
    parser.add_argument("--healthy", action="store_true", help="the doctor on the scripts of tests/healthy/")
    parser.add_argument("--page", action="store_true", help="write docs/zoo.md from docs/zoo.json")
    parser.add_argument("--check", action="store_true", help="is docs/zoo.md what --page would write?")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what was said where it was not right")
    return parser.parse_args(words)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _columns(text: str) -> tuple[str, ...]:
    if unknown := set(_words(text)) - set(COLUMNS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {', '.join(COLUMNS)}")
    return _words(text)


if __name__ == "__main__":
    sys.exit(main())
