"""Runs scripts on both engines, each in an empty folder, and compares stdout, exit status and the files they leave."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from differential.compare import Difference, compare_files, compare_outputs
from differential.engines import ENGINES, environment, launcher
from differential.outcome import Outcome

FOLDER = Path(__file__).parent / "scripts"
TIMEOUT_S = 90.0
MAX_SAID = 2000


@dataclass(frozen=True, slots=True)
class Script:
    """A script as users write them: one file, or a folder with a `main.py`."""

    path: Path
    methods: tuple[str, ...]
    """The start methods that it is run with; it reads its own from sys.argv[1]."""
    needs: tuple[str, ...]
    """Libraries without which it is not run."""
    command: tuple[str, ...]
    """What it is run as: `main.py`, or `-m package`."""

    @property
    def name(self) -> str:
        """`category/name`."""
        return str(self.path.relative_to(FOLDER).with_suffix(""))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a script ended, and what it left."""

    status: int | str
    stdout: str
    stderr: str
    files: dict[str, bytes]


def find_scripts() -> list[Script]:
    """All scripts, by name."""
    folders = {main.parent for main in FOLDER.glob("*/*/main.py")}
    files = [path for path in FOLDER.glob("*/*.py") if path.parent not in folders]
    return sorted((_read(path) for path in (*folders, *files)), key=lambda script: script.name)


def _read(path: Path) -> Script:
    """A script says how it is to be run in comments: `# methods: fork spawn`, `# needs: h5py`, `# command: -m tool`."""
    text = (path / "main.py" if path.is_dir() else path).read_text()
    said = dict(re.findall(r"^# (methods|needs|command): (.*)$", text, re.MULTILINE))
    default = "main.py" if path.is_dir() else path.name
    return Script(
        path,
        methods=tuple(said.get("methods", "fork spawn").split()),
        needs=tuple(said.get("needs", "").split()),
        command=tuple(said.get("command", default).split()),
    )


def run_all(
    scripts: Iterable[Script], *, method: str | None, jobs: int, folder: Path, tell: Callable[[Outcome], None]
) -> None:
    """Run each script by each of its start methods, or by this one if it has it, and tell what came of it."""
    pairs = [(script, each) for script in scripts for each in script.methods if method in (None, each)]
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(compare_script, *pair, folder) for pair in pairs]):
            tell(done.result())


def compare_script(script: Script, method: str, folder: Path) -> Outcome:
    """Run one script on both engines."""
    program = f"script {script.name} {method}"
    missing = [library for library in script.needs if find_spec(library) is None]
    if missing:
        return Outcome(program, no_comparison=f"there is no {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="d-", dir=folder) as place:
        ends = {engine: _run(script, method, engine, Path(place)) for engine in ENGINES}
    torch, ours = ends["torch"], ends["ours"]
    if torch.status == "hung":
        return Outcome(program, no_comparison=f"torch: no end after {TIMEOUT_S:.0f} s")
    differences = tuple(_compare(program, torch, ours))
    return Outcome(program, differences, said=ours.stderr[-MAX_SAID:] if differences else "", events=1)


def _compare(program: str, torch: Ended, ours: Ended) -> Iterator[Difference]:
    if torch.status != ours.status:
        yield Difference(program, "status", str(torch.status), str(ours.status))
    yield from compare_outputs(program, torch.stdout, ours.stdout)
    yield from compare_files(program, torch.files, ours.files)


def _run(script: Script, method: str, engine: str, place: Path) -> Ended:
    """Run it once. Both engines run it at the same path, so that paths in its output are the same."""
    work, state = place / "work", place / f"state-{engine}"
    state.mkdir(mode=0o700)
    if script.path.is_dir():
        shutil.copytree(script.path, work)
    else:
        work.mkdir()
        shutil.copy(script.path, work)
    before = read_files(work)
    command = [*launcher(engine), *script.command, method]
    popen = subprocess.Popen(
        command,
        cwd=work,
        env=environment(engine, state),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = popen.communicate(timeout=TIMEOUT_S)
        status: int | str = popen.returncode
    except subprocess.TimeoutExpired:
        status = "hung"
        _kill_group(popen.pid)
        stdout, stderr = popen.communicate()
    _kill_group(popen.pid)  # what a script leaves running is not to run beside the next
    files = {name: content for name, content in read_files(work).items() if before.get(name) != content}
    shutil.rmtree(work)
    return Ended(status, stdout.decode(errors="replace"), stderr.decode(errors="replace"), files)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def read_files(folder: Path) -> dict[str, bytes]:
    """All files of a folder; those that cannot be read as such (sockets, pipes) by name only."""
    paths = [path for path in folder.rglob("*") if not path.is_dir() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in paths}
