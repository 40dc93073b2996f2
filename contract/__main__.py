"""`python -m contract SUITE`: run torch's own tests on stock torch, then on antifreeze, and compare.

    python -m contract path/to/pytorch/test/test_dataloader.py
    python -m contract SUITE -k test_iterable            some of them
    python -m contract SUITE --json build/contract.json  every outcome, to be compared with the next time

The suite is PyTorch's and not part of this repository: `test/test_dataloader.py` of github.com/pytorch/pytorch. Tests that
pass on stock torch here are the contract. Those that do not pass on ours must be listed, each with its reason, in
`docs/design/torch-test-suite.md`.

Exit status: 0 if at least 98 % pass and the rest is listed; 1 if not; 2 if the suite could not be run.
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
from typing import Literal

from contract.compare import Comparison, compare, listed

ROOT = Path(__file__).resolve().parents[1]
REASONS = ROOT / "docs" / "design" / "torch-test-suite.md"
GOAL = 0.98
# Of one test, and of the whole suite: it takes seven minutes on two quiet cores.
TEST_TIMEOUT_S = 300
SUITE_TIMEOUT_S = 3600

Engine = Literal["torch", "antifreeze"]


def main() -> int:
    options = _parse_options()
    if not options.suite.is_file():
        print(f"contract: there is no {options.suite}; SUITE=path/to/pytorch/test/test_dataloader.py", file=sys.stderr)
        return 2
    stock = run(options.suite, "torch", options.only)
    if not stock:
        print("contract: none of the tests could be run on stock torch; see above", file=sys.stderr)
        return 2
    ours = run(options.suite, "antifreeze", options.only)
    comparison = compare(stock, ours)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"torch": stock, "antifreeze": ours}, indent=1))
    return report(comparison, listed(REASONS.read_text()))


def run(suite: Path, engine: Engine, only: str | None) -> dict[str, str]:
    """The outcome of each test: passed, skipped, failed or error."""
    with tempfile.TemporaryDirectory(prefix="af-", dir="/tmp") as folder:
        results = Path(folder, "results.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
        command += [f"--rootdir={suite.parent}", f"--timeout={TEST_TIMEOUT_S}", f"--junitxml={results}", str(suite)]
        environment = {**os.environ, "ANTIFREEZE": "0"}
        if engine == "antifreeze":
            command += ["-p", "contract.in_place"]
            environment |= {"ANTIFREEZE": "require", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        if only:
            command += ["-k", only]
        print(f"contract: {suite.name} on {engine} …", flush=True)
        subprocess.run(command, cwd=folder, env=environment, timeout=SUITE_TIMEOUT_S, check=False)
        return outcomes(results.read_text()) if results.is_file() else {}


def outcomes(junit: str) -> dict[str, str]:
    """The outcome of each test, from what pytest writes."""
    found = {}
    for case in ET.fromstring(junit).iter("testcase"):
        verdicts = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        found[name] = {"failure": "failed", "error": "failed"}.get(verdicts[0], verdicts[0]) if verdicts else "passed"
    return found


def report(comparison: Comparison, reasons: frozenset[str]) -> int:
    """Print what came of it; the exit status."""
    unlisted = [name for name in comparison.broken if name.rpartition("::")[2] not in reasons]
    for name in comparison.broken:
        print(f"  differs  {name}" + ("" if name in unlisted else "  (listed)"))
    share = comparison.share
    print(
        f"contract: {comparison.kept} of {comparison.all} tests that pass on torch pass on antifreeze ({share:.1%}; "
        f"goal {GOAL:.0%}); {len(unlisted)} that do not are not listed in {REASONS.relative_to(ROOT)}"
    )
    print(f"contract: outcomes on antifreeze: {dict(Counter(comparison.ours.values()))}")
    return 0 if share >= GOAL and not unlisted else 1


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path, metavar="SUITE", help="PyTorch's test/test_dataloader.py")
    parser.add_argument("-k", dest="only", metavar="WORDS", help="only tests whose names match, as pytest's -k")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes there")
    options = parser.parse_args()
    options.suite = options.suite.resolve()
    return options


if __name__ == "__main__":
    sys.exit(main())
