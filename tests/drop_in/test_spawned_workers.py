"""Where the program asks for spawn or forkserver, a worker is a fresh process: it imports user code and unpickles the
dataset itself, shares tensors with the trainer as torch does, has none of the trainer's settings, and ends as torch's ends.

One script per start method asks all the questions. What it prints is written down here, and is torch's: the self-test runs
the same script on torch (`DROP_IN_SELFTEST=1`).
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from user_scripts import Ended, Script

MODULE = r"""
import os, queue, random, threading, uuid

import numpy as np
import torch

GENERATOR = np.random.default_rng()
PYTHONS = random.Random()
DRAWN = random.random(), np.random.random(), torch.rand(1).item()  # before a worker is seeded
PID = os.getpid()
SESSION = uuid.uuid4().hex
SETTING = "as imported"

asked, answered = queue.Queue(), queue.Queue()


def serve():
    while True:
        answered.put(asked.get() * 2)


threading.Thread(target=serve, daemon=True).start()


def ask(number):
    asked.put(number)
    return answered.get(timeout=120)


with open("imports.txt", "a") as file:
    file.write(f"{os.getpid()}\n")
"""

SCRIPT = r"""
import atexit, json, multiprocessing, os, random, socket, socketserver, sys, threading, warnings, weakref
import concurrent.futures
import logging

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import module

METHOD = sys.argv[1]
atexit.register(lambda: open("ends.txt", "a").write(f"atexit of {__name__}\n"))


class Base(Dataset):
    def __len__(self):
        return 8


class Opening(Base):
    # Drops what belongs to a process when it is pickled, and opens it again where it arrives.

    def __init__(self, port):
        self.port = port

    def __getstate__(self):
        return {"port": self.port}

    def __setstate__(self, state):
        self.port = state["port"]
        self.pid = os.getpid()
        self.entropy = np.random.default_rng()
        self.drawn = random.random(), np.random.random()
        self.connection = socket.create_connection(("127.0.0.1", self.port))
        self.answers = self.connection.makefile("rb")
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.pool.submit(int).result(20)
        self.log = open(f"log.{os.getpid()}.txt", "w")

    def __getitem__(self, index):
        if index < 2:
            atexit.register(open("ends.txt", "a").write, "atexit of a sample\n")
            weakref.finalize(self, lambda: open("ends.txt", "a").write("weakref.finalize\n"))
        self.log.write(f"{index} ")
        self.connection.sendall(b"%d\n" % index)
        process = multiprocessing.current_process()
        return {
            "index": index,
            "answer": int(self.answers.readline()),
            "pooled": self.pool.submit(abs, -index).result(20),
            "asked": module.ask(index),
            "own pid": (self.pid == os.getpid(), module.PID == os.getpid()),
            "random": (self.entropy.random(), module.GENERATOR.random(), module.PYTHONS.random()),
            "process": (os.getpid(), module.SESSION, *self.drawn, *module.DRAWN),
            "settings": (
                str(torch.get_default_dtype()),
                torch.are_deterministic_algorithms_enabled(),
                torch.is_grad_enabled(),
                np.get_printoptions()["precision"],
                np.geterr()["over"],
                sys.getrecursionlimit(),
                logging.getLogger().level,
                module.SETTING,
                any(entry[2] is FutureWarning for entry in warnings.filters),
            ),
            "name": process.name,
            "daemon": process.daemon,
            "start method": multiprocessing.get_start_method(),
            "main": (type(self).__module__, os.path.basename(sys.modules["__main__"].__file__)),
        }


class Counting(Base):
    def __init__(self):
        self.visits = torch.zeros(8, dtype=torch.long)
        self.part = self.visits[4:]
        self.factor = torch.nn.Parameter(torch.ones(1))

    def __getitem__(self, index):
        self.visits[index] += 1
        return index, self.visits[index].item(), self.factor.item()


class Answers(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"%d\n" % (2 * int(line)))


def main():
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    torch.set_default_dtype(torch.float64)
    torch._C._set_deterministic_algorithms(True)
    np.set_printoptions(precision=3)
    np.seterr(over="raise")
    sys.setrecursionlimit(5000)
    logging.getLogger().setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)
    module.SETTING = "as changed"
    with torch.no_grad():
        opening = Opening(server.server_address[1])
        samples = list(DataLoader(opening, batch_size=None, num_workers=2, multiprocessing_context=METHOD))
    counting = Counting()
    keeps = {"persistent_workers": True, "prefetch_factor": 1}
    loader = DataLoader(counting, batch_size=None, num_workers=1, multiprocessing_context=METHOD, **keeps)
    visits = []
    for epoch in range(2):
        visits.append([count for _, count, _ in loader])
        with torch.no_grad():
            counting.factor += 1
    factors = [factor for _, _, factor in loader]
    seen = counting.part.tolist()
    del loader
    print(json.dumps({"samples": samples, "visits": visits, "factors": factors, "seen": seen}))


if __name__ == "__main__":
    main()
"""

METHODS = {"spawn": "SpawnProcess", "forkserver": "ForkServerProcess"}
Told = dict[str, Any]


@pytest.fixture(scope="module")
def known() -> dict[str, Told]:
    """What the scripts said: one run of each serves all questions."""
    return {}


@pytest.fixture(params=METHODS)
def told(
    request: pytest.FixtureRequest, known: dict[str, Told], start_script: Callable[..., Script], tmp_path: Path
) -> Told:
    if not known:
        known.update(ask_all(start_script, tmp_path))
    return {"method": request.param, **known[request.param]}


def ask_all(start_script: Callable[..., Script], folder: Path) -> dict[str, Told]:
    """Both scripts, side by side."""
    running = {}
    for method in METHODS:
        place = folder / method
        place.mkdir()
        (place / "module.py").write_text(MODULE)
        (place / "script.py").write_text(SCRIPT)
        running[method] = start_script(place / "script.py", method, via="antifreeze")
    found = {}
    for method, script in running.items():
        ended: Ended = script.wait_exit(within_s=100)
        script.assert_gone()
        texts = {path.name: path.read_text() for path in (folder / method).glob("*.txt")}
        found[method] = {**json.loads(ended.check().stdout), "texts": texts, "stderr": ended.stderr}
    return found


def values(told: Told, key: str) -> list[Any]:
    return [sample[key] for sample in told["samples"]]


@pytest.mark.long(but=1)
def test_what_setstate_opens_belongs_to_one_worker(told: Told) -> None:
    assert values(told, "answer") == [2 * index for index in range(8)]
    assert values(told, "pooled") == list(range(8))
    assert values(told, "own pid") == [[True, True]] * 8
    assert len({number for sample in values(told, "random") for number in sample}) == 24


def test_modules_of_the_user_are_imported_by_each_worker(told: Told) -> None:
    assert values(told, "asked") == [2 * index for index in range(8)]
    processes = {tuple(each) for each in values(told, "process")}
    assert [len(set(column)) for column in zip(*processes, strict=True)] == [2] * 7
    importers = told["texts"]["imports.txt"].split()
    assert len(importers) == len(set(importers)) == 1 + 2 + 1, "the program, two workers, one worker"


def test_tensors_are_shared_between_trainer_and_workers(told: Told) -> None:
    assert told["visits"] == [[1] * 8, [2] * 8]
    assert told["factors"] == [3] * 8
    assert told["seen"] == [3] * 4
    assert "AF503" not in told["stderr"]


def test_settings_of_the_trainer_are_not_carried(told: Told) -> None:
    fresh = ["torch.float32", False, True, 8, "warn", 1000, 30, "as imported", False]
    assert values(told, "settings") == [fresh] * 8
    assert "AF302" not in told["stderr"]


def test_a_worker_is_to_multiprocessing_what_torchs_is(told: Told) -> None:
    assert sorted(set(values(told, "name"))) == [f"{METHODS[told['method']]}-{number}" for number in (1, 2)]
    assert values(told, "daemon") == [True] * 8
    assert values(told, "start method") == [told["method"]] * 8
    assert values(told, "main") == [["__mp_main__", "script.py"]] * 8


def test_a_worker_ends_as_torchs_does(told: Told) -> None:
    logs = sorted(text for name, text in told["texts"].items() if name.startswith("log."))
    lines = sorted(told["texts"]["ends.txt"].splitlines())
    if told["method"] == "spawn":
        assert logs == ["0 2 4 6 ", "1 3 5 7 "]
        workers = ["atexit of __mp_main__"] * 3 + ["atexit of a sample"] * 2 + ["weakref.finalize"] * 2
        assert lines == sorted(["atexit of __main__", *workers])
    elif sys.version_info < (3, 13):  # from then on, multiprocessing runs them in forked processes, too
        assert lines == ["atexit of __main__"]
