"""Only the user's own processes are at the ends of anything of ours: docs/security.md, as far as it can be tried."""

import ast
import os
import re
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from torch.utils.data import Dataset

from antifreeze.engine.backends import clean
from drop_in.harness import Way, our_way
from processes.datasets import Pictures
from user_scripts import Ended

pytestmark = pytest.mark.usefixtures("not_for_torch")

PACKAGE = Path(__file__).parents[2] / "src" / "antifreeze"
# In the column "Flags" of /proc/net/unix: the socket accepts connections.
ACCEPTS = 0x10000


def descriptors(pid: int | str = "self") -> dict[int, str]:
    """What every descriptor of a process stands for, such as `socket:[4711]`."""
    folder = f"/proc/{pid}/fd"
    found = {}
    for name in os.listdir(folder):
        try:
            found[int(name)] = os.readlink(f"{folder}/{name}")
        except FileNotFoundError:  # the one that the listing itself was read from
            continue
    return found


def processes_below() -> list[int]:
    return [process.pid for process in psutil.Process().children(recursive=True)]


def shared_mappings(pid: int | str) -> set[str]:
    """The files that a process has mapped so that others see what it writes."""
    return set(re.findall(r" rw-s \S+ \S+ \S+ +(.+)", Path(f"/proc/{pid}/maps").read_text()))


def unix_sockets() -> dict[str, tuple[int, str]]:
    """Flags and name of every local socket, by what its descriptor says."""
    lines = [line.split(maxsplit=7) for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {f"socket:[{fields[6]}]": (int(fields[3], 16), fields[7] if len(fields) > 7 else "") for fields in lines}


class Open(Dataset[Any]):
    """A sample is all that the worker has open, and its pid."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return list(descriptors().values()), os.getpid()


def by_worker(loader: Any) -> dict[int, list[str]]:
    return {pid: links for batch in loader for links, pid in batch}


def test_nobody_listens_and_no_socket_has_a_name(way: Way) -> None:
    before = set(descriptors().values())
    batches = iter(way.make(Pictures(64), batch_size=4))
    next(batches)
    others = [link for pid in processes_below() for link in descriptors(pid).values()]
    ours = {link for link in [*descriptors().values(), *others] if link.startswith("socket:")} - before
    known = unix_sockets()
    assert len(ours) >= 4  # two ends for each of two workers
    assert [link for link in ours if link not in known] == []  # each is a local one: nothing of ours is in the network
    assert [link for link in ours if known[link][0] & ACCEPTS or known[link][1]] == []
    del batches


def test_shared_memory_has_no_name(way: Way) -> None:
    opened_before, mapped_before = set(descriptors().values()), shared_mappings("self")
    batches = iter(way.make(Pictures(64), batch_size=4))
    next(batches)
    mapped = set().union(*map(shared_mappings, [os.getpid(), *processes_below()]))
    assert any(path.startswith("/memfd:antifreeze-slot") for path in mapped)
    assert [path for path in mapped - mapped_before if not path.startswith("/memfd:antifreeze")] == []
    # Not all that is in /dev/shm now: other programs, such as other tests, put files there.
    opened = {link for pid in (os.getpid(), *processes_below()) for link in descriptors(pid).values()}
    assert [path for path in opened - opened_before if path.startswith("/dev/shm/")] == []
    del batches


def test_a_worker_has_its_own_channel_and_that_of_nobody_else(way: Way) -> None:
    inherited = set(descriptors().values()) if way.context == "fork" else set()
    workers = by_worker(way.make(Open(), batch_size=2, collate_fn=list))
    assert len(workers) == 2
    own = [{link for link in links if link.startswith("socket:")} - inherited for links in workers.values()]
    assert [len(sockets) for sockets in own] == [1, 1] and own[0] != own[1]


def test_a_clean_worker_has_nothing_open_but_what_it_needs() -> None:
    workers = by_worker(our_way("clean").make(Open(), batch_size=2, collate_fn=list))
    streams = {os.readlink(f"/proc/self/fd/{number}") for number in (1, 2)} | {"/dev/null"}
    for links in workers.values():
        kinds = sorted(link.partition("[")[0] for link in links if link not in streams and "/proc/" not in link)
        # The memory that its stacks are written into, two pipes that end with the trainer, the one to Python's resource
        # tracker, and its channel.
        assert kinds == ["/memfd:antifreeze-slot (deleted)", *3 * ["pipe:"], "socket:"]


@pytest.mark.long(but=1)
def test_a_worker_has_nothing_of_another_loader(way: Way) -> None:
    inherited = set(descriptors().values())
    first = iter(way.make(Pictures(256), batch_size=4))
    next(first)
    theirs = {link for pid in ["self", *processes_below()] for link in descriptors(pid).values()} - inherited
    private = {link for link in theirs if link.startswith("socket:")}
    workers = by_worker(way.make(Open(), batch_size=2, collate_fn=list))
    assert len(private) >= 4
    assert all(private.isdisjoint(links) for links in workers.values())
    del first


class StartsPrograms(Dataset[Any]):
    """A sample is what a program that the dataset starts has open, all that can be inherited being so."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        listing = subprocess.run(
            ["ls", "-l", "/proc/self/fd"],
            close_fds=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        return [line.split(" -> ")[1] for line in listing.stdout.splitlines() if " -> " in line]


@pytest.mark.long
def test_a_program_that_a_dataset_starts_inherits_nothing_of_ours(way: Way) -> None:
    clean.stop_base()  # one of an earlier test has the standard streams of that time
    inherited = {"/dev/null", *descriptors().values()}
    for (links,) in way.make(StartsPrograms(), batch_size=1, collate_fn=list):
        own = [link for link in links if link not in inherited and not link.startswith("/proc/")]
        assert len(own) == 2 and all(link.startswith("pipe:") for link in own)  # for its output and its errors


def test_files_of_a_run_are_for_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from antifreeze.observe import files

    monkeypatch.setenv("ANTIFREEZE_DIR", str(tmp_path / "state"))
    previous = os.umask(0)
    try:
        path = files.write_stacks("stall-1.txt", "stacks")
    finally:
        os.umask(previous)
    assert path is not None
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


def test_nothing_is_ever_unpickled_from_a_file() -> None:
    readers = {"pickle.load", "cloudpickle.load", "torch.load", "marshal.load", "shelve.open", "joblib.load"}
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in readers
    ]
    assert found == []


SPAWNING = """
import antifreeze

if __name__ == "__main__":
    loader = antifreeze.DataLoader(range(4), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    print([batch.tolist() for batch in loader])
"""


@pytest.mark.long
@pytest.mark.parametrize("module", ["torch", "cloudpickle"])
def test_a_clean_process_imports_nothing_from_the_current_directory(
    run_script: Callable[..., Ended], tmp_path: Path, module: str
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / f"{module}.py").write_text("import os\nos.write(2, b'PLANTED')\nos._exit(7)\n")
    ended = run_script(SPAWNING, wrapper=("env", f"--chdir={shared}"))
    assert "PLANTED" not in ended.stderr
    assert ended.stdout == "[[0, 1], [2, 3]]\n"
