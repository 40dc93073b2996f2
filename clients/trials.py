"""One client: a training written for some library, run on torch as it is and on our engine, and what is not the same.

The scripts of this folder know nothing of us. They print every loss in full, as `loss <series> <float.hex()>`, and that
is what is compared; which loaders ran on our engine is read from the file of ANTIFREEZE_USAGE. Whatever a run started is
found by a mark in the environment and is gone when `run_client` returns. Linux only: it looks into `/proc`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The longest takes 25 s on two busy cores, most of it for imports.
TIME_LIMIT_S = 240.0
# How long processes may take to leave after the script has ended (torch's resource tracker is a process, too).
LEAVE_LIMIT_S = 3.0

Losses = Mapping[str, tuple[str, ...]]
"""Series (of a rank, in training or validation) → its losses in order, as `float.hex` writes them."""


@dataclass(frozen=True, slots=True)
class Client:
    """A training script, and what torch makes of it."""

    name: str
    package: str
    """The distribution whose version is shown, and without which the script cannot run."""
    script: str
    iterators: int
    """How many iterators with workers all its processes make: one that takes a way around us would not be seen else."""
    launcher: tuple[str, ...] = ()
    """A command of PROGRAMS, and its arguments, that starts the script."""
    processes: int = 1
    may_fall_back: bool = False
    """Its loaders may run on torch's iterator, as long as the losses stay the same."""

    def words(self) -> list[str]:
        """All that follows `python`, or `antifreeze run`, on the command line."""
        launcher = [str(program(self.launcher[0])), *self.launcher[1:]] if self.launcher else []
        return [*launcher, str(HERE / self.script)]

    def version(self) -> str | None:
        """None: it is not installed."""
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(self.package)
        return None


PROGRAMS = {"accelerate": "accelerate", "torchrun": "torch"}
"""Commands that start scripts, and the distributions that bring them."""

TWO_RANKS = ("torchrun", "--standalone", "--nproc-per-node", "2")
LAUNCH = ("accelerate", "launch", "--cpu", "--num_processes", "1")

CLIENTS = (
    Client("Lightning, fit and predict", "lightning", "train_lightning_fit.py", iterators=4),
    Client("Lightning, 2-rank DDP", "lightning", "train_lightning_ddp.py", iterators=6, processes=2),
    Client("Lightning Fabric", "lightning", "train_fabric.py", iterators=3),
    Client("accelerate", "accelerate", "train_accelerate.py", iterators=3),
    Client("accelerate launch", "accelerate", "train_accelerate.py", iterators=3, launcher=LAUNCH),
    # `accelerate launch` starts several processes on a CPU with mpirun only; torchrun is the other documented way.
    Client(
        "accelerate, 2 processes",
        "accelerate",
        "train_accelerate.py",
        iterators=6,
        launcher=TWO_RANKS,
        processes=2,
    ),
    Client("transformers Trainer", "transformers", "train_hf_trainer.py", iterators=2),
    Client("PyTorch Geometric, graphs", "torch_geometric", "train_pyg_graphs.py", iterators=3),
    Client("PyTorch Geometric, nodes", "torch_geometric", "train_pyg_nodes.py", iterators=3),
    Client("MONAI", "monai", "train_monai.py", iterators=4),
    Client("fastai", "fastai", "train_fastai.py", iterators=4),
    Client("ignite", "pytorch-ignite", "train_ignite.py", iterators=3),
    Client("skorch", "skorch", "train_skorch.py", iterators=4),
    Client("webdataset", "webdataset", "train_webdataset.py", iterators=4),
    Client("datasets, streaming", "datasets", "train_hf_streaming.py", iterators=3),
    Client("torchrun, 2 ranks", "torch", "train_torchrun.py", iterators=6, launcher=TWO_RANKS, processes=2),
)


@dataclass(frozen=True, slots=True)
class Usage:
    """One iterator with workers, as our engine wrote it down."""

    pid: int
    engine: str
    stem: str | None = None
    reason: str | None = None

    @property
    def is_ours(self) -> bool:
        return self.engine == "antifreeze"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, as seen from outside."""

    exit_code: int | None
    """None: it was still running at the limit and was stopped."""
    seconds: float
    losses: Losses
    last_words: str = ""
    """The last error on stderr; empty if the run ended well."""
    said: tuple[str, ...] = ()
    """What our engine printed."""
    usage: tuple[Usage, ...] = ()
    left_behind: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True, slots=True)
class Trial:
    """A client on torch and on our engine."""

    client: Client
    torch: Ending
    ours: Ending
    lenient: Ending | None = None
    """Ours once more with ANTIFREEZE=1, if a loader fell back where it must not: are the losses the same at least?"""
    torch_again: Ending | None = None
    """torch once more, if the losses differ: does it give the same losses twice?"""

    @property
    def compared(self) -> Ending:
        return self.lenient or self.ours

    @property
    def is_same(self) -> bool:
        return self.torch.losses == self.compared.losses != {}

    @property
    def on_engine(self) -> int:
        return sum(use.is_ours for use in self.compared.usage)

    @property
    def fallen_back(self) -> int:
        return len(self.compared.usage) - self.on_engine

    @property
    def faults(self) -> tuple[str, ...]:
        """Why this is not as it must be; empty if it is."""
        client, usage = self.client, self.compared.usage
        found = [f"{where}: {how_it_failed(ending)}" for where, ending in self._endings() if not ending.is_good]
        if not found and not self.is_same:
            found.append(difference(self.torch.losses, self.compared.losses))
            if self.torch_again is not None and self.torch_again.losses != self.torch.losses:
                found.append("torch gives other losses every time, too")
        if self.fallen_back and not client.may_fall_back:
            reasons = sorted({use.reason or "?" for use in usage if not use.is_ours})
            found.append(f"{self.fallen_back} of {len(usage)} iterators fell back: {'; '.join(reasons)}")
        if len(usage) != client.iterators and self.compared.is_good:
            found.append(f"{len(usage)} iterators came to us, and torch makes {client.iterators}")
        processes = len({use.pid for use in usage})
        if processes != client.processes and self.compared.is_good:
            found.append(f"we are in {processes} of {client.processes} processes")
        found += [f"left behind: {thing}" for thing in self.ours.left_behind]
        return tuple(found)

    def _endings(self) -> list[tuple[str, Ending]]:
        """Those that must end well: what failed under `require` is told by the reasons of falling back."""
        return [("on torch", self.torch), ("on our engine", self.compared)]


def difference(torchs: Losses, ours: Losses) -> str:
    """Where two runs part, in one line."""
    if not torchs or not ours:
        return "no losses were printed"
    if torchs.keys() != ours.keys():
        return f"other series of losses: {', '.join(ours)}, and on torch: {', '.join(torchs)}"
    series = next(name for name in torchs if torchs[name] != ours[name])
    if len(torchs[series]) != len(ours[series]):
        return f"losses of {series}: {len(ours[series])}, and on torch {len(torchs[series])}"
    pairs = list(zip(ours[series], torchs[series], strict=True))
    place = next(place for place, (mine, theirs) in enumerate(pairs) if mine != theirs)
    mine, theirs = pairs[place]
    return f"losses of {series} differ from number {place + 1} of {len(pairs)} on: {mine}, and on torch {theirs}"


def how_it_failed(ending: Ending) -> str:
    if ending.exit_code is None:
        return f"still running after {ending.seconds:.0f} s, and stopped"
    return f"exit status {ending.exit_code}: {ending.last_words}"


def losses_in(stdout: str) -> dict[str, tuple[str, ...]]:
    """All losses that were printed.

    Ranks share one stdout, and torchrun makes it unbuffered: a line is in one piece, but its end may come after the
    beginning of another.
    """
    found: dict[str, tuple[str, ...]] = {}
    for series, value in re.findall(r"loss ([a-z0-9 ]+) (-?0x[01]\.[0-9a-f]+p[+-]\d+|-?inf|nan)", stdout):
        found[series] = (*found.get(series, ()), value)
    return found


def last_error(stderr: str) -> str:
    """The last line that looks like an exception's, or the last one of all."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?:\[rank\d+\]: *)?(?:\w+\.)*[A-Z]\w*: \S", line)]
    return (errors or lines or ["nothing on stderr"])[-1]


def usage_in(text: str) -> tuple[Usage, ...]:
    lines = [json.loads(line) for line in text.splitlines()]
    return tuple(Usage(line["pid"], line["engine"], line["stem"], line["reason"]) for line in lines)


def program(name: str) -> Path:
    """Where a command is; torch may be lent from another environment, so PATH would not do."""
    files = metadata.distribution(PROGRAMS[name]).files or []
    return next(Path(str(file.locate())).resolve() for file in files if file.name == name)


def run_client(client: Client, *, time_limit_s: float = TIME_LIMIT_S) -> Trial:
    torch = run(client, mode=None, time_limit_s=time_limit_s)
    mode = "1" if client.may_fall_back else "require"
    ours = run(client, mode=mode, time_limit_s=time_limit_s)
    must_not = mode == "require" and any(not use.is_ours for use in ours.usage)
    lenient = run(client, mode="1", time_limit_s=time_limit_s) if must_not else None
    trial = Trial(client, torch, ours, lenient)
    if trial.is_same or not (torch.is_good and trial.compared.is_good):
        return trial
    return Trial(client, torch, ours, lenient, torch_again=run(client, mode=None, time_limit_s=time_limit_s))


def run(client: Client, *, mode: str | None, time_limit_s: float) -> Ending:
    """Run the script, on torch as it is (None) or with ANTIFREEZE=mode, and leave nothing of it behind."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="clients-drive-") as name:
        folder = Path(name)
        for part in ("tmp", "cache"):
            (folder / part).mkdir()
        usage_file = folder / "usage.jsonl"
        environment = environment_for(mark, tmp=folder / "tmp", cache=folder / "cache")
        if mode is not None:
            environment |= {"ANTIFREEZE": mode, "ANTIFREEZE_USAGE": str(usage_file)}
        engine = [] if mode is None else ["-m", "antifreeze", "run"]
        # Files, not pipes: a worker that outlives the script must not keep us waiting for an end of file.
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            started = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, *engine, *client.words()],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                cwd=folder / "tmp",
                start_new_session=True,
            )
            exit_code: int | None = None
            try:
                with suppress(subprocess.TimeoutExpired):
                    exit_code = process.wait(time_limit_s)
                seconds = time.monotonic() - started
                left = [] if exit_code is None else wait_gone(mark)
            finally:
                kill_marked(mark)
                process.wait()
        printed, errors = ((folder / stream).read_text(errors="replace") for stream in ("stdout", "stderr"))
        return Ending(
            exit_code,
            seconds,
            losses_in(printed),
            last_words=last_error(errors) if exit_code else "",
            said=tuple(line for line in errors.splitlines() if line.startswith("antifreeze:")),
            usage=usage_in(usage_file.read_text()) if usage_file.exists() else (),
            left_behind=tuple(left),
        )


def environment_for(mark: str, *, tmp: Path, cache: Path) -> dict[str, str]:
    """Ours, without what would make two runs differ; nothing is looked for in a network or kept for the next run."""
    unwanted = ("ANTIFREEZE", "PYTHONUNBUFFERED", "PYTHONHASHSEED")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(unwanted)},
        "CLIENTS_MARK": mark,
        "TMPDIR": str(tmp),
        "HF_HOME": str(cache),
        "HF_HUB_OFFLINE": "1",
        "MPLCONFIGDIR": str(cache),
        "OMP_NUM_THREADS": "1",  # the order of a sum, and with it its last bit, depends on the number of threads
        "TOKENIZERS_PARALLELISM": "false",
    }


def marked(mark: str) -> dict[int, str]:
    """Living processes with the mark in their environment (those of one run), and their names."""
    wanted = f"CLIENTS_MARK={mark}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone in the meantime, or not ours to look at
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if words:  # a zombie has none
                    found[int(folder.name)] = words
    return found


def wait_gone(mark: str) -> list[str]:
    """Who is still there LEAVE_LIMIT_S after the script has ended."""
    deadline = time.monotonic() + LEAVE_LIMIT_S
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [f"process {pid}: {words[:80]}" for pid, words in left.items()]


def kill_marked(mark: str) -> None:
    """Kill until nobody is left: between a look and a kill one of them may have forked."""
    deadline = time.monotonic() + 10
    while left := marked(mark):
        if time.monotonic() > deadline:
            raise RuntimeError(f"could not kill {list(left)}")
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
