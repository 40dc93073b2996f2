"""Runs scripts on both engines, each in an empty folder, and compares stdout, exit status and the files they leave."""

from __future__ import annotations

import queue
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from differential.compare import Difference, compare_files, compare_outputs
from differential.engines import ENGINES, environment, launcher
from differential.lanes import HUNG, Lane, kill_group
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
    is_cold: bool
    """It needs an interpreter of its own, and not a fork of one that has imported torch."""

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
    said = dict(re.findall(r"^# (methods|needs|command|cold): (.*)$", text, re.MULTILINE))
    default = "main.py" if path.is_dir() else path.name
    return Script(
        path,
        methods=tuple(said.get("methods", "fork spawn").split()),
        needs=tuple(said.get("needs", "").split()),
        command=tuple(said.get("command", default).split()),
        is_cold="cold" in said or "command" in said,
    )


def run_all(
    scripts: Iterable[Script],
    *,
    method: str | None,
    jobs: int,
    is_cold: bool,
    folder: Path,
    tell: Callable[[Outcome], None],
) -> None:
    """Run each script by each of its start methods, or by this one if it has it, and tell what came of it."""
    waiting: queue.SimpleQueue[tuple[Script, str]] = queue.SimpleQueue()
    for script in scripts:
        for each in script.methods:
            if method in (None, each):
                waiting.put((script, each))

    def serve() -> None:
        stage = Stage(folder, is_cold=is_cold)
        try:
            while True:
                tell(stage.compare(*waiting.get_nowait()))
        except queue.Empty:
            return
        finally:
            stage.end()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Stage:
    """Runs scripts on both engines, one after the other."""

    def __init__(self, folder: Path, *, is_cold: bool) -> None:
        self._folder, self._is_cold = folder, is_cold
        self._lanes = {
            engine: Lane(engine, [*launcher(engine), "-m", "differential.warm"], folder) for engine in ENGINES
        }

    def compare(self, script: Script, method: str) -> Outcome:
        """Run a script on both engines. They run it at the same path, so that paths in its output are the same."""
        program = f"script {script.name} {method}"
        missing = [library for library in script.needs if find_spec(library) is None]
        if missing:
            return Outcome(program, no_comparison=f"there is no {', '.join(missing)}")
        with tempfile.TemporaryDirectory(prefix="d-", dir=self._folder) as place:
            torch, ours = (self._run(script, method, engine, Path(place)) for engine in ENGINES)
        if torch.status == HUNG:
            return Outcome(program, no_comparison=f"torch: no end after {TIMEOUT_S:.0f} s")
        differences = tuple(_differences(program, torch, ours))
        return Outcome(program, differences, said=ours.stderr[-MAX_SAID:] if differences else "")

    def end(self) -> None:
        """End the lanes."""
        for lane in self._lanes.values():
            lane.end()

    def _run(self, script: Script, method: str, engine: str, place: Path) -> Ended:
        work, stdout, stderr = place / "work", place / f"stdout-{engine}", place / f"stderr-{engine}"
        if script.path.is_dir():
            shutil.copytree(script.path, work)
        else:
            work.mkdir()
            shutil.copy(script.path, work)
        before = read_files(work)
        if self._is_cold or script.is_cold:
            status = _run_cold([*launcher(engine), *script.command, method], engine, work, stdout, stderr)
        else:
            status = self._run_warm(engine, script.command[0], method, work, stdout, stderr)
        files = {name: content for name, content in read_files(work).items() if before.get(name) != content}
        shutil.rmtree(work)
        return Ended(status, stdout.read_text(errors="replace"), stderr.read_text(errors="replace"), files)

    def _run_warm(self, engine: str, script: str, method: str, work: Path, stdout: Path, stderr: Path) -> int | str:
        order = {"script": script, "method": method, "folder": str(work), "timeout_s": TIMEOUT_S}
        self._lanes[engine].give(order | {"stdout": str(stdout), "stderr": str(stderr)})
        return self._lanes[engine].take(TIMEOUT_S)


def _run_cold(command: list[str], engine: str, work: Path, stdout: Path, stderr: Path) -> int | str:
    state = Path(tempfile.mkdtemp(prefix="state-", dir=work.parent))
    with stdout.open("wb") as out, stderr.open("wb") as err:
        popen = subprocess.Popen(
            command,
            cwd=work,
            env=environment(engine, state),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    try:
        return popen.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return HUNG
    finally:
        kill_group(popen.pid)  # what a script leaves running is not to run beside the next
        popen.wait()


def _differences(program: str, torch: Ended, ours: Ended) -> Iterator[Difference]:
    if torch.status != ours.status:
        yield Difference(program, "status", str(torch.status), str(ours.status))
    yield from compare_outputs(program, torch.stdout, ours.stdout)
    yield from compare_files(program, torch.files, ours.files)


def read_files(folder: Path) -> dict[str, bytes]:
    """All files of a folder; those that cannot be read as such (sockets, pipes) by name only."""
    paths = [path for path in folder.rglob("*") if not path.is_dir() and "__pycache__" not in path.parts]
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in paths}
