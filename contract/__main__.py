"""`python -m contract SUITE`: run the tests of another loader on that loader, then on ours, and compare.

    python -m contract path/to/pytorch/test/test_dataloader.py               torch's DataLoader
    python -m contract --of torchdata path/to/data/test/stateful_dataloader  torchdata's StatefulDataLoader
    python -m contract SUITE -k test_iterable            some of them
    python -m contract SUITE --json build/contract.json  every outcome, to be compared with the next time

The suites are PyTorch's (github.com/pytorch/pytorch, github.com/meta-pytorch/data) and not part of this repository. Tests
that pass on stock here are the contract. Those that do not pass on ours must be listed, each with its reason, on a page
in `docs/design`.

Exit status: 0 if enough of them pass, and just those that are listed do not; 1 if not; 2 if the suite could not be run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from contract.compare import Comparison, compare, listed
from contract.suites import ROOT, SUITES, Suite

# Of one test, and of one file: the longest takes seven minutes on two quiet cores.
TEST_TIMEOUT_S = 300
FILE_TIMEOUT_S = 3600


def main() -> int:
    options = _parse_options()
    suite = SUITES[options.of]
    files = suite.files(options.suite)
    if not all(file.is_file() for file in files) or not files:
        print(f"contract: there are no tests at {options.suite}; SUITE=path/to/{suite.where}", file=sys.stderr)
        return 2
    stock = run(suite, files, is_ours=False, only=options.only)
    if not stock:
        print(f"contract: none of the tests could be run on stock {suite.stock}; see above", file=sys.stderr)
        return 2
    ours = run(suite, files, is_ours=True, only=options.only)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({suite.stock: stock, "antifreeze": ours}, indent=1))
    return report(suite, compare(stock, ours, listed(suite.reasons.read_text())))


def run(suite: Suite, files: list[Path], *, is_ours: bool, only: str | None) -> dict[str, str]:
    """The outcome of each test: passed, skipped or failed."""
    environment = {**os.environ, "ANTIFREEZE": "0"}
    if is_ours:
        path = os.pathsep.join(str(folder) for folder in (ROOT / "contract" / "boot", ROOT, ROOT / "src"))
        environment |= {"ANTIFREEZE": "require", "CONTRACT": suite.stock, "PYTHONPATH": path}
    found: dict[str, str] = {}
    for file in files:
        print(f"contract: {file.name} on {'antifreeze' if is_ours else suite.stock} …", flush=True)
        found |= run_file(file, environment, only)
    return found


def run_file(file: Path, environment: dict[str, str], only: str | None) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="af-", dir="/tmp") as folder:
        results = Path(folder, "results.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
        command += [f"--rootdir={file.parent}", f"--timeout={TEST_TIMEOUT_S}", f"--junitxml={results}", str(file)]
        if only:
            command += ["-k", only]
        subprocess.run(command, cwd=folder, env=environment, timeout=FILE_TIMEOUT_S, check=False)
        return outcomes(results.read_text()) if results.is_file() else {}


def outcomes(junit: str) -> dict[str, str]:
    """The outcome of each test, `file.Class::test_…`, from what pytest writes."""
    found = {}
    for case in ET.fromstring(junit).iter("testcase"):
        verdicts = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        name = f"{case.get('classname', '')}::{case.get('name')}"
        found[name] = {"failure": "failed", "error": "failed"}.get(verdicts[0], verdicts[0]) if verdicts else "passed"
    return found


def report(suite: Suite, comparison: Comparison) -> int:
    """Print what came of it; the exit status."""
    unlisted, outdated, share = comparison.unlisted, comparison.outdated, comparison.share
    for name in comparison.broken:
        print(f"  differs  {name}" + ("" if name in unlisted else "  (listed)"))
    for name in outdated:
        print(f"  passes, and is listed  {name}")
    print(
        f"contract: {comparison.kept} of {comparison.all} tests that pass on {suite.stock} pass on antifreeze "
        f"({share:.1%}; goal {suite.goal:.0%}); not as {suite.reasons.relative_to(ROOT)} lists them: "
        f"{len(unlisted) + len(outdated)}"
    )
    print(f"contract: outcomes on antifreeze: {dict(Counter(comparison.ours.values()))}")
    return 0 if share >= suite.goal and not unlisted and not outdated else 1


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path, metavar="SUITE", help="; ".join(each.where for each in SUITES.values()))
    parser.add_argument("--of", choices=SUITES, default="torch", help="whose tests they are (%(default)s)")
    parser.add_argument("-k", dest="only", metavar="WORDS", help="only tests whose names match, as pytest's -k")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes there")
    options = parser.parse_args()
    options.suite = options.suite.resolve()
    return options


if __name__ == "__main__":
    sys.exit(main())
