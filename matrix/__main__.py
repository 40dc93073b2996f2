"""`python -m matrix`: run our suites on every release of torch, each in an environment of its own.

    python -m matrix                   all releases, newest first; hours, as each is a download of gigabytes
    python -m matrix 2.15.0 2.6.0      these
    python -m matrix --quick 2.15.0    without the tests that take long
    python -m matrix --keep 2.15.0     leave the environment in /tmp/matrix-2.15.0; the next run uses it again
    python -m matrix --only suites …   all but the benchmarks
    python -m matrix --only check …    the self-check alone, or --only bench: the rest of the row stays as it is
    python -m matrix --page            write docs/versions.md and the table of torch_side/known.py from docs/versions/

Every run ends by writing the page and the table. What the programs print is in build/matrix/RELEASE.log.

Exit status: 0 if all suites passed on these releases (with --only check: all self-checks), else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from matrix.environment import ROOT, Environment, NotRun, built
from matrix.page import BENCHMARKS, known_releases, known_source, page
from matrix.releases import RELEASES, in_order
from matrix.rows import (
    Ratio,
    SelfCheckResult,
    SuiteResult,
    VersionRow,
    as_json,
    from_json,
    last_line,
    ratios_from_bench,
    suite_from_junit,
)

ROWS = ROOT / "docs" / "versions"
PAGE = ROOT / "docs" / "versions.md"
KNOWN = ROOT / "src" / "antifreeze" / "torch_side" / "known.py"
LOGS = ROOT / "build" / "matrix"

DROP_IN = ("tests/drop_in", "tests/arena", "tests/torch_side")
FAULTS = ("tests/processes", "tests/supervise", "tests/test_chaos.py")

SELF_CHECK_TIMEOUT_S = 300
# On two quiet cores a suite takes five minutes, and with the long tests fifteen.
SUITE_TIMEOUT_S = 3600
BENCH_TIMEOUT_S = 900
BENCH_ROUNDS = 5
BENCH_SECONDS = 1.5


def main() -> int:
    options = _parse_options()
    if options.page:
        write_page()
        return 0
    # An ending that stops the program that runs, and deletes the environment; also where a shell ignores Ctrl-C for us.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(143))
    failed = []
    for release in sorted(options.releases or RELEASES, key=in_order, reverse=True):
        row = run(release, options)
        ROWS.mkdir(parents=True, exist_ok=True)
        (ROWS / f"{release}.json").write_text(as_json(row))
        write_page()
        if not (row.is_fit if options.only == "check" else row.has_passed):
            failed.append(release)
    print(f"matrix: not passed: {', '.join(failed)}; see {PAGE.relative_to(ROOT)}" if failed else "matrix: all passed")
    return int(bool(failed))


def run(release: str, options: argparse.Namespace) -> VersionRow:
    """The row of one release."""
    path = ROWS / f"{release}.json"
    is_part = options.only in ("check", "bench") and path.exists()
    row = from_json(path.read_text()) if is_part else new_row(release, options)
    log = LOGS / f"{release}.log"
    try:
        _say(release, "building the environment")
        with built(release, keep=options.keep, log=log) as environment:
            if options.only != "bench":
                _say(release, "self-check")
                row = replace(row, self_check=self_check(environment))
            if options.only in (None, "suites"):
                row = with_suites(row, environment)
            if options.only in (None, "bench"):
                row = replace(row, ratios=bench(environment, row))
    except NotRun as reason:
        _say(release, f"{reason}: {last_line(log.read_text(errors='replace'))}")
        return replace(row, problem=str(reason))
    return row


def new_row(release: str, options: argparse.Namespace) -> VersionRow:
    return VersionRow(
        torch=release,
        date=time.strftime("%Y-%m-%d"),
        commit=commit(),
        python=platform.python_version(),
        load=round(os.getloadavg()[0], 1),
        cores=len(os.sched_getaffinity(0)),
        is_whole=not options.quick,
    )


def with_suites(row: VersionRow, environment: Environment) -> VersionRow:
    for name, paths in (("drop_in", DROP_IN), ("faults", FAULTS)):
        _say(row.torch, " ".join(paths))
        suite = run_suite(environment, name, paths, is_whole=row.is_whole)
        _say(row.torch, f"{suite.passed} passed, {suite.skipped} skipped, {len(suite.failures)} failed")
        for test in suite.failures:
            print(f"    {test}", flush=True)
        row = replace(row, **{name: suite})
    return row


def self_check(environment: Environment) -> SelfCheckResult | None:
    environment.forget()
    try:
        environment.run(str(ROOT / "matrix" / "self_check.py"), timeout_s=SELF_CHECK_TIMEOUT_S)
    except NotRun as reason:
        return SelfCheckResult("", f"the program {reason}", 0.0)
    return SelfCheckResult(**json.loads(environment.log.read_text(errors="replace").splitlines()[-1]))


def run_suite(environment: Environment, name: str, paths: tuple[str, ...], *, is_whole: bool) -> SuiteResult:
    results = environment.folder / f"{name}.xml"
    results.unlink(missing_ok=True)
    processes = min(3, os.cpu_count() or 1) + 1  # as `make test`
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(processes), "--dist", "loadfile"]
    command += ["--hypothesis-seed=0"]  # every torch gets the same examples
    command += [f"--junitxml={results}", *([] if is_whole else ["-m", "not long"]), *paths]
    problem = None
    try:
        environment.run(*command, timeout_s=SUITE_TIMEOUT_S, may_fail=True)
    except NotRun as reason:
        problem = str(reason)
    if results.is_file():
        return replace(suite_from_junit(results.read_text()), problem=problem)
    return SuiteResult(problem=problem or f"no results: {last_line(environment.log.read_text(errors='replace'))}")


def bench(environment: Environment, row: VersionRow) -> dict[str, Ratio]:
    _say(row.torch, f"benchmarks {', '.join(BENCHMARKS)}")
    results = environment.folder / "bench.json"
    results.unlink(missing_ok=True)
    command = ["benchmarks/run.py", "--only", ",".join(BENCHMARKS), "--engines", "torch,antifreeze"]
    command += ["--pairs", str(BENCH_ROUNDS), "--seconds", str(BENCH_SECONDS), "--json", str(results)]
    try:
        environment.run(*command, timeout_s=BENCH_TIMEOUT_S, may_fail=True)  # it fails where a goal is missed
    except NotRun as reason:
        _say(row.torch, f"the benchmarks {reason}")
    return ratios_from_bench(json.loads(results.read_text())) if results.is_file() else {}


def read_rows(folder: Path = ROWS) -> list[VersionRow]:
    return [from_json(path.read_text()) for path in sorted(folder.glob("*.json"))]


def write_page() -> None:
    rows = read_rows()
    PAGE.write_text(page(rows, RELEASES))
    KNOWN.write_text(known_source(KNOWN.read_text(), known_releases(rows)))


def commit() -> str:
    def git(*words: str) -> str:
        ended = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
        return ended.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + (
            "+" if git("status", "--porcelain", "--", "src", "tests") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _say(release: str, text: str) -> None:
    print(f"matrix: {time.strftime('%H:%M:%S')} torch {release}: {text}", flush=True)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "releases", nargs="*", metavar="RELEASE", help=f"some of them: {', '.join(RELEASES)}, or others"
    )
    parser.add_argument("--quick", action="store_true", help="leave out the tests that take long")
    parser.add_argument("--keep", action="store_true", help="do not delete the environment")
    parser.add_argument("--only", choices=("check", "suites", "bench"), help="a part of it")
    parser.add_argument("--page", action="store_true", help="write the page and the table, and run nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
