"""The zoo: programs that fail on stock torch, unmodified, under `antifreeze run`."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ZOO = Path(__file__).resolve().parents[3] / "shared" / "zoo"
CLASSES = {"shared-memory", "file-descriptors", "main-guard"}

pytestmark = [
    pytest.mark.usefixtures("not_for_torch"),
    pytest.mark.skipif(not (ZOO / "drive.py").exists(), reason="the zoo is not here"),
]


def header(path: Path) -> dict[str, Any]:
    """The TOML block at the top of a case."""
    lines = path.read_text().split("# /// zoo\n")[1].split("# ///\n")[0].splitlines()
    return tomllib.loads("\n".join(line.removeprefix("# ") for line in lines))


CASES = {path.stem: header(path) for path in sorted(ZOO.glob("[0-9][0-9][0-9]_*.py"))} if ZOO.exists() else {}


@pytest.mark.deadline(60)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["class"] in CLASSES])
def test_a_case_of_the_zoo_ends_as_its_header_says(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    if "shm_mb" in case and (os.geteuid() != 0 or not shutil.which("unshare")):
        pytest.skip("a small /dev/shm needs root")
    report = tmp_path / "report.json"
    drive = [sys.executable, str(ZOO / "drive.py"), "--prefix", "antifreeze run", "--slack", "1.5"]
    ended = subprocess.run(
        [*drive, "--only", name, "--json", str(report)], capture_output=True, text=True, timeout=55, check=False
    )
    assert report.exists(), ended.stderr
    (row,) = json.loads(report.read_text())
    assert row["left"] == 0, row
    assert row["got"] == "ok" if case["survivable"] else row["got"] in {"error", "crash"}, row
