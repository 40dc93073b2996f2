"""The zoo: programs that fail on stock torch, unmodified, under `antifreeze run`."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ZOO = Path(__file__).resolve().parents[3] / "shared" / "zoo"
CLASSES = {"shared-memory", "file-descriptors", "main-guard"}

CAN_MOUNT = os.geteuid() == 0 and shutil.which("unshare") is not None

pytestmark = [
    pytest.mark.usefixtures("not_for_torch"),
    pytest.mark.skipif(not (ZOO / "drive.py").exists(), reason="the zoo is not here"),
]


def header(path: Path) -> dict[str, Any]:
    """The TOML block at the top of a case."""
    lines = path.read_text().split("# /// zoo\n")[1].split("# ///\n")[0].splitlines()
    return tomllib.loads("\n".join(line.removeprefix("# ") for line in lines))


CASES = {path.stem: header(path) for path in sorted(ZOO.glob("[0-9][0-9][0-9]_*.py"))} if ZOO.exists() else {}


NAMES = [name for name, case in CASES.items() if case["class"] in CLASSES]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of each case; they run in two lanes."""
    folder = tmp_path_factory.mktemp("zoo")
    chosen = [name for name in NAMES if "shm_mb" not in CASES[name] or CAN_MOUNT]
    with ThreadPoolExecutor(2) as lanes:
        results = lanes.map(drive, (chosen[::2], chosen[1::2]), (folder / "0.json", folder / "1.json"))
        return {row["id"]: row for rows in results for row in rows}


def drive(names: list[str], report: Path) -> list[dict[str, Any]]:
    words = ["--prefix", "antifreeze run", "--slack", "2", "--only", ",".join(names), "--json", str(report)]
    ended = subprocess.run(
        [sys.executable, str(ZOO / "drive.py"), *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert report.exists(), ended.stderr
    return list(json.loads(report.read_text()))


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", NAMES)
def test_a_case_of_the_zoo_ends_as_its_header_says(request: pytest.FixtureRequest, name: str) -> None:
    if "shm_mb" in CASES[name] and not CAN_MOUNT:
        pytest.skip("a small /dev/shm needs root")
    row = request.getfixturevalue("rows")[name]
    assert row["left"] == 0, row
    assert row["got"] == "ok" if CASES[name]["survivable"] else row["got"] in {"error", "crash"}, row
