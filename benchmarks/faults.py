"""What a fault does to antifreeze, to torch and to their peers: `make bench-faults`, or `python benchmarks/faults.py`.

24 samples, 2 workers; the fault strikes when sample 5 is first loaded. Every cell of the table is a process of its own that
loads one epoch and says what it gets; after an error it goes on calling `next()`, to see what can be saved. It is ended 20
seconds after its first batch. Exit status 1 if antifreeze does not do what is promised of it; peers cannot fail the run.

`--page` writes `docs/faults-of-peers.md` from the JSON file beside it; `--check` says whether that is what it holds.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from engines import is_importable
from report import ROOT
from workloads import QUIET_LOAD

SAMPLES, WORKERS, BATCH, BAD = 24, 2, 2, 5
LIMIT_S = 20.0
"""From the first batch on."""
START_S = 60.0
"""To the first batch; some peers import all of their program anew."""
# They remove shared memory that others have left, once those are gone, and end by themselves.
CLEANERS, CLEAN_S = ("resource_tracker", "torch_shm_manager"), 5.0
# So many errors with nothing between them: it gives errors for ever.
MOST_ERRORS = 5

PAGE = ROOT / "docs" / "faults-of-peers.md"
FIGURES = ROOT / "docs" / "faults-of-peers.json"


# --- what is loaded


class Unsendable:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("this cannot be pickled")


class Unreadable(Exception):
    """Can be pickled, but not back: its constructor wants more than its text."""

    def __init__(self, path: str, line: int) -> None:
        super().__init__(f"{path}:{line} is broken")


def nothing() -> int:
    return BAD


def raise_value_error() -> Any:
    raise ValueError("cannot decode sample 5")


def be_killed() -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> Any:
    os._exit(0)


def be_stuck() -> Any:
    time.sleep(100_000)


def return_unsendable() -> Any:
    return Unsendable()


def raise_unreadable() -> Any:
    raise Unreadable("labels.csv", 7)


@dataclass(frozen=True)
class Samples:
    """Sample `i` is `i`, but for the fault; a file tells whether it has struck."""

    fault: str
    note: str

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: Any) -> Any:
        if index == BAD and self._is_first():
            return FAULTS[self.fault].act()
        return int(index)

    def _is_first(self) -> bool:
        with suppress(FileExistsError):
            os.close(os.open(self.note, os.O_CREAT | os.O_EXCL))
            return True
        return False


@dataclass(frozen=True)
class Fault:
    title: str
    act: Callable[[], Any]
    is_users: bool
    """Whether the user's code says so itself, by an exception or by what it returns."""
    can_be_skipped: bool = False
    """Whether `on_error="skip"` is about it."""


FAULTS = {
    "none": Fault("none (control)", nothing, is_users=False),
    "value-error": Fault("raises ValueError", raise_value_error, is_users=True, can_be_skipped=True),
    "killed": Fault("SIGKILL of the worker", be_killed, is_users=False),
    "exit-0": Fault("worker `os._exit(0)`", leave, is_users=False),
    "stuck": Fault("stuck (sleeps for ever)", be_stuck, is_users=False),
    "unsendable": Fault("result cannot be pickled", return_unsendable, is_users=True),
    "unreadable": Fault("exception that cannot be un-pickled", raise_unreadable, is_users=True, can_be_skipped=True),
}


# --- by whom


def open_torch(samples: Samples) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    return DataLoader(samples, batch_size=BATCH, num_workers=WORKERS, collate_fn=list)  # type: ignore[arg-type]


def open_ours(samples: Samples) -> Iterable[Any]:
    from antifreeze import DataLoader

    return DataLoader(samples, batch_size=BATCH, num_workers=WORKERS, collate_fn=list)  # type: ignore[arg-type]


def open_ours_skipping(samples: Samples) -> Iterable[Any]:
    from antifreeze import DataLoader

    return DataLoader(
        samples,  # type: ignore[arg-type]
        batch_size=BATCH,
        num_workers=WORKERS,
        collate_fn=list,
        on_error="skip",
    )


def open_stateful(samples: Samples) -> Iterable[Any]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(samples, batch_size=BATCH, num_workers=WORKERS, collate_fn=list)


def open_nodes(samples: Samples) -> Iterable[Any]:
    from torch.utils.data import SequentialSampler
    from torchdata.nodes import Loader, ParallelMapper, SamplerWrapper

    indices = SamplerWrapper(SequentialSampler(range(SAMPLES)))
    return Loader(ParallelMapper(indices, samples.__getitem__, num_workers=WORKERS, method="process"))


def open_spdl(samples: Samples) -> Iterable[Any]:
    from spdl.dataloader import get_pytorch_dataloader

    return get_pytorch_dataloader(samples, batch_size=BATCH, num_workers=WORKERS, collate_fn=list, in_order=True)


def open_spdl_pipeline(samples: Samples) -> Iterable[Any]:
    from spdl.pipeline import PipelineBuilder, run_pipeline_in_subprocess

    builder = PipelineBuilder().add_source(range(SAMPLES)).pipe(samples.__getitem__, concurrency=WORKERS).add_sink(4)
    return run_pipeline_in_subprocess(builder.get_config(), num_threads=WORKERS)


def open_grain(samples: Samples) -> Iterable[Any]:
    import grain

    options = grain.MultiprocessingOptions(num_workers=WORKERS, per_worker_buffer_size=2)
    return grain.MapDataset.source(samples).to_iter_dataset().mp_prefetch(options)


@dataclass(frozen=True)
class Engine:
    title: str
    module: str
    package: str
    open: Callable[[Samples], Iterable[Any]]
    unit: int = BATCH
    """Samples in what it delivers at a time."""


OURS, SKIPPING = "antifreeze", "antifreeze-skip"
ENGINES = {
    OURS: Engine("antifreeze", "antifreeze", "antifreeze", open_ours),
    SKIPPING: Engine('antifreeze, `on_error="skip"`', "antifreeze", "antifreeze", open_ours_skipping),
    "torch": Engine("torch", "torch", "torch", open_torch),
    "stateful": Engine("StatefulDataLoader", "torchdata", "torchdata", open_stateful),
    "nodes": Engine("torchdata.nodes (process)", "torchdata", "torchdata", open_nodes, unit=1),
    "spdl": Engine("SPDL `get_pytorch_dataloader`", "spdl", "spdl_core", open_spdl),
    "spdl-pipeline": Engine("SPDL `run_pipeline_in_subprocess`", "spdl", "spdl_core", open_spdl_pipeline, unit=1),
    "grain": Engine("Grain `mp_prefetch`", "grain", "grain", open_grain, unit=1),
}


# --- one cell, in its process


def load(engine: str, fault: str, note: str) -> None:
    """Load one epoch, and write a line about everything that comes."""
    is_over = False
    batches, errors = iter(ENGINES[engine].open(Samples(fault, note))), 0
    tell(kind="ready")
    while errors < MOST_ERRORS and not is_over:
        try:
            batch = next(batches)
        except StopIteration:
            is_over = True
        except Exception as error:  # whatever an engine makes of a fault is what is looked for
            errors += 1
            tell(kind="error", error=type(error).__name__, text=str(error)[:2000])
        else:
            errors = 0
            tell(kind="batch", batch=batch if isinstance(batch, list) else [int(batch)])
    tell(kind="end" if is_over else "no end")


def tell(**what: Any) -> None:
    print(json.dumps(what, default=repr), flush=True)


# --- the driver


@dataclass
class Cell:
    """What came of one fault in one engine."""

    engine: str
    fault: str
    batches: list[list[Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    error_s: float | None = None
    """From the first batch to the first error."""
    seconds: float = 0.0
    """From the first batch to the end."""
    is_over: bool = False
    """Whether it came to an end by itself."""

    def whole(self) -> int:
        """How many of the right batches came, in any order: peers that do not keep it are not blamed for that here."""
        expected = [list(range(k, k + self.unit)) for k in range(0, SAMPLES, self.unit)]
        return sum(batch in self.batches for batch in expected)

    @property
    def unit(self) -> int:
        return ENGINES[self.engine].unit

    @property
    def text(self) -> str:
        """The cell of the table."""
        count = f"{self.whole()}/{SAMPLES // self.unit}"
        said = f"raised {self.errors[0]} after {self.error_s:.1f} s" if self.errors and self.error_s is not None else ""
        if not self.is_over:
            return f"{said}{', then ' if said else ''}**blocked**; {count}"
        if said:
            return f"{said}; {count}"
        if self.whole() * self.unit == SAMPLES:
            return count
        if self.engine == SKIPPING and self.short_batch() is not None:
            return f"{count}, and the batch without sample {BAD}; in the ledger"
        return f"**no error**; {count}"

    def short_batch(self) -> list[Any] | None:
        """The batch that went without the bad sample."""
        return next((batch for batch in self.batches if batch == [BAD - 1]), None)


def is_as_promised(cell: Cell) -> bool:
    """Whether antifreeze has done what the README says; all that the user's code does not say itself is mended."""
    fault, all_of_them = FAULTS[cell.fault], SAMPLES // BATCH
    if not cell.is_over:
        return False
    if not fault.is_users:
        return not cell.errors and cell.batches == [[k, k + 1] for k in range(0, SAMPLES, BATCH)]
    if cell.engine == SKIPPING and fault.can_be_skipped:
        return not cell.errors and cell.whole() == all_of_them - 1 and cell.short_batch() is not None
    return len(cell.errors) == 1 and cell.whole() == all_of_them - 1


def measure(engine: str, fault: str) -> Cell:
    """Run one cell in a process of its own, which is ended with all that it started."""
    cell = Cell(engine, fault)
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        environment = {**os.environ, "ANTIFREEZE": "require", "ANTIFREEZE_DIR": folder, "TMPDIR": folder}
        command = [sys.executable, __file__, "--cell", engine, fault, str(Path(folder) / "note")]
        with Path(folder, "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment, start_new_session=True
            )
        try:
            listen(process, cell)
        finally:
            end(process)
    return cell


def listen(process: subprocess.Popen[str], cell: Cell) -> None:
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    reader = threading.Thread(target=lambda stream: [lines.put(line) for line in stream], args=(process.stdout,))
    reader.daemon = True
    reader.start()
    since, deadline = time.monotonic(), time.monotonic() + START_S
    while (left := deadline - time.monotonic()) > 0 and not cell.is_over:
        try:
            line = lines.get(timeout=min(left, 0.5))
        except queue.Empty:
            if process.poll() is not None and lines.empty() and not reader.is_alive():
                cell.errors.append("the program ended")
                return
            continue
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        if said["kind"] == "batch" and not cell.batches:
            since = time.monotonic()
            deadline = since + LIMIT_S
        note(cell, said, after_s=time.monotonic() - since)
        if said["kind"] == "no end":
            return


def note(cell: Cell, said: dict[str, Any], *, after_s: float) -> None:
    match said["kind"]:
        case "batch":
            cell.batches.append(said["batch"])
        case "error":
            cell.errors.append(said["error"])
            cell.texts.append(said["text"])
            cell.error_s = after_s if cell.error_s is None else cell.error_s
        case "end":
            cell.is_over = True
    cell.seconds = after_s


def end(process: subprocess.Popen[str]) -> None:
    """End a process with all that is of its session, whoever their parent is by now."""
    kill_session(process.pid, spare=CLEANERS)
    process.wait(10)
    deadline = time.monotonic() + CLEAN_S
    while session(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    kill_session(process.pid)


def kill_session(leader: int, *, spare: tuple[str, ...] = ()) -> None:
    for one in session(leader):
        with suppress(psutil.Error):
            if not any(word in " ".join(one.cmdline()) for word in spare):
                one.kill()


def session(leader: int) -> list[psutil.Process]:
    """The processes of a session."""
    found = []
    for one in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(one.pid) == leader:
                found.append(one)
    return found


# --- the report


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for engine in ENGINES.values():
        with suppress(metadata.PackageNotFoundError):
            found[engine.package] = metadata.version(engine.package)
    return found


def table(cells: list[Cell]) -> Iterator[str]:
    engines = [name for name in ENGINES if any(cell.engine == name for cell in cells)]
    by = {(cell.engine, cell.fault): cell for cell in cells}
    yield f"| fault at sample {BAD} | {' | '.join(ENGINES[name].title for name in engines)} |"
    yield "|---" * (len(engines) + 1) + "|"
    for name, fault in FAULTS.items():
        if any((engine, name) in by for engine in engines):
            texts = [by[engine, name].text if (engine, name) in by else "" for engine in engines]
            yield f"| {fault.title} | {' | '.join(texts)} |"


TOP = """\
# What a fault does to others

<!-- Written by `make bench-faults-page` from docs/faults-of-peers.json. Do not edit. -->

24 samples, 2 workers, default settings. The fault strikes when sample 5 is first loaded. After an error the loop goes on
calling `next()`, to see what can be saved. *Blocked*: nothing came for the rest of 20 seconds after the first batch.
"12/12" are batches of 2, "24/24" single samples, of those that do not batch themselves. All that can happen to antifreeze:
[faults.md](faults.md).

"""


def page(report: dict[str, Any]) -> str:
    cells = [Cell(**cell) for cell in report["cells"]]
    used = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    remarks = "loky and pebble, which are pools and no loaders, are left out."
    if report["load"] > QUIET_LOAD:
        remarks += "\n**Others were using the machine: distrust the seconds.**"
    return (
        TOP
        + "\n".join(table(cells))
        + f"\n\nTaken on {report['at']}, `make bench-faults`: {used}; load before: {report['load']}. {remarks}\n"
    )


def main() -> int:
    if sys.argv[1:2] == ["--cell"]:
        load(*sys.argv[2:])
        return 0
    options = parse_options()
    if options.page or options.check:
        text = page(json.loads(FIGURES.read_text()))
        if options.page:
            PAGE.write_text(text)
        return int(PAGE.read_text() != text)
    return run(options)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write what came of every cell")
    parser.add_argument("--engines", type=lambda text: text.split(","), default=[*ENGINES], help=", ".join(ENGINES))
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*FAULTS], help=", ".join(FAULTS))
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)} and do nothing else")
    parser.add_argument("--check", action="store_true", help="exit status 1 if the page is not what would be written")
    return parser.parse_args()


def run(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an ending that stops the cell under way, too
    at, load = time.strftime("%Y-%m-%d"), os.getloadavg()[0]
    cells = []
    for name in options.engines:
        engine = ENGINES[name]
        if not is_importable(engine.module):
            print(f"{engine.title}: left out, {engine.package} is not installed", flush=True)
            continue
        for fault in options.only:
            cell = measure(name, fault)
            cells.append(cell)
            print(f"{engine.title:34} {FAULTS[fault].title:36} {cell.text}", flush=True)
    print("\n".join(["", *table(cells)]))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        report = {"at": at, "load": round(load, 2), "versions": versions(), "cells": [asdict(cell) for cell in cells]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    broken = [cell for cell in cells if cell.engine in (OURS, SKIPPING) and not is_as_promised(cell)]
    for cell in broken:
        print(f"not as promised: {cell}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
