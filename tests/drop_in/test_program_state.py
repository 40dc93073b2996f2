"""A worker sees the program as the trainer has set it up where torch would fork: also if a fresh process takes its place.

(Where the program asks for spawn, it sees what torch's spawned worker sees: `test_spawned_workers.py`.)

One script changes every item of program state that people change, after the imports, and has a worker report what it
sees. It exists with a main guard and without one, and runs unmodified under `antifreeze run`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drop_in.harness import SELFTEST
from user_scripts import Ended, Script

CONFIGURATION = '''
"""A module of the user's, as projects have them: settings, a registry, classes with switches."""

import types

image_size = 32
crop = (1, 2)
mean = [0.5]
options = types.SimpleNamespace(rate=0.1)
handle = None
palette = {"sky": "blue"}
REGISTRY = {}


def register(name):
    def put(function):
        REGISTRY[name] = function
        return function
    return put


class Noise(UserWarning):
    pass


class Backbone:
    depth = 18
    options = {"norm": "batch"}
'''

EXTRA = "value = 'found through sys.path'\n"

IMPORTS = """
import json, logging, os, sys, threading, warnings
import numpy as np
import torch
from PIL import Image, ImageFile
from torch.utils.data import DataLoader, Dataset

import configuration
from configuration import options


class Report(Dataset):
    def __init__(self, registered, lock):
        self.registered = registered
        self.lock = lock

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return json.dumps(report(self.registered))


def report(registered):
    import extra_module

    old_mask = os.umask(0)
    os.umask(old_mask)
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn("a matter of taste", FutureWarning)
        warnings.warn("an old name", PendingDeprecationWarning)
        warnings.warn("noise", configuration.Noise)
    return {
        "truncated images": ImageFile.LOAD_TRUNCATED_IMAGES,
        "largest image": Image.MAX_IMAGE_PIXELS,
        "config global": configuration.image_size,
        "config tuple": configuration.crop,
        "config dict": configuration.palette,
        "config array": float(configuration.mean[0]),
        "config namespace": options.rate,
        "new config global": getattr(configuration, "batch_norm", None),
        "default dtype": str(torch.get_default_dtype()),
        "tensor made": str(torch.ones(1).dtype),
        "grad": torch.is_grad_enabled(),
        "numpy errors": np.geterr()["over"],
        "logging level": logging.getLogger().getEffectiveLevel(),
        "logger level": logging.getLogger("project.data").getEffectiveLevel(),
        "sys.path": extra_module.value,
        "environment": os.environ.get("PROJECT_MODE"),
        "removed from the environment": os.environ.get("PROJECT_OLD"),
        "working directory": os.getcwd(),
        "registry": sorted(configuration.REGISTRY),
        "registered function": registered is not None and registered(3),
        "class attribute": configuration.Backbone.depth,
        "class attribute dict": configuration.Backbone.options,
        "main global": THRESHOLD,
        "umask": old_mask,
        "argv": sys.argv[1:],
        "script": os.path.basename(sys.argv[0]),
        "warnings": sorted(str(warning.message) for warning in caught),
        "hash seed": hash("antifreeze"),
        "recursion limit": sys.getrecursionlimit(),
    }


THRESHOLD = 0.5
"""

BODY = """
    global THRESHOLD
    THRESHOLD = 0.75
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    Image.MAX_IMAGE_PIXELS = None
    configuration.image_size = 224
    configuration.crop = (5, 6)
    configuration.palette["sea"] = "green"
    configuration.batch_norm = False
    configuration.mean = torch.tensor([0.25]).numpy()
    options.rate = 0.5
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    np.seterr(over="raise")
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("project.data").setLevel(logging.DEBUG)
    sys.path.insert(0, os.path.join(os.getcwd(), "elsewhere"))
    os.environ["PROJECT_MODE"] = "fast"
    os.environ["PYTHONHASHSEED"] = "5"  # as functions do that seed everything: changes nothing in this process
    del os.environ["PROJECT_OLD"]
    os.chdir("elsewhere")
    register = configuration.register("double")(double)
    configuration.Backbone.depth = 50
    configuration.Backbone.options["norm"] = "layer"
    os.umask(0o027)
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("always", category=PendingDeprecationWarning)
    warnings.filterwarnings("ignore", category=configuration.Noise)
    sys.setrecursionlimit(3210)
    lock = threading.Lock()
    if sys.argv[1] == "fresh":
        lock.acquire()  # which a fork would break, so that a fresh process takes its place
    loader = DataLoader(Report(register, lock), batch_size=None, num_workers=2, multiprocessing_context="fork")
    seen = list(loader)
    print(json.dumps({"trainer": report(register), "workers": [json.loads(one) for one in seen]}))
"""

DOUBLE = """

def double(number):
    return 2 * number


def main():
"""

GUARDED = IMPORTS + DOUBLE + BODY + "\n\nif __name__ == '__main__':\n    main()\n"
UNGUARDED = IMPORTS + DOUBLE + BODY + "\n\nmain()\n"
ITEMS = [
    *("truncated images", "largest image", "config global", "config tuple", "config dict", "new config global"),
    *("config array", "config namespace", "numpy errors"),
    *("default dtype", "tensor made", "grad", "logging level", "logger level", "sys.path"),
    *("environment", "removed from the environment", "working directory", "registry", "registered function"),
    *("class attribute", "class attribute dict", "umask", "argv", "script", "warnings", "hash seed"),
    *("recursion limit", "main global"),
]
CHANGED = {
    "truncated images": True,
    "largest image": None,
    "config global": 224,
    "config tuple": [5, 6],
    "config dict": {"sky": "blue", "sea": "green"},
    "new config global": False,
    "config array": 0.25,
    "config namespace": 0.5,
    "default dtype": "torch.float64",
    "grad": False,
    "numpy errors": "raise",
    "sys.path": "found through sys.path",
    "environment": "fast",
    "removed from the environment": None,
    "registry": ["double"],
    "registered function": 6,
    "class attribute": 50,
    "class attribute dict": {"norm": "layer"},
    "umask": 0o027,
    "warnings": ["an old name"],
    "main global": 0.75,
}

CONTEXTS = ["fork"] if SELFTEST else ["fork", "fresh"]
KINDS = {"guarded": GUARDED, "unguarded": UNGUARDED}

Known = dict[tuple[str, str], Ended]
Reports = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def known() -> Known:
    """How the scripts ended: one run of each serves all items."""
    return {}


@pytest.fixture
def reports(known: Known, start_script: Callable[..., Script], tmp_path: Path) -> Reports:
    if not known:
        run_all(known, start_script, tmp_path)
    return lambda kind, context: json.loads(known[kind, context].check().stdout)


def run_all(known: Known, start_script: Callable[..., Script], folder: Path) -> None:
    """All scripts, side by side."""
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "extra_module.py").write_text(EXTRA)
    (folder / "configuration.py").write_text(CONFIGURATION)
    environment = {"PROJECT_OLD": "yes", "PYTHONHASHSEED": "17"}
    running = {
        (kind, context): start_script(KINDS[kind], context, "--lr=3", via="antifreeze", env=environment)
        for kind in KINDS
        for context in CONTEXTS
    }
    for which, script in running.items():
        known[which] = script.wait_exit(within_s=30)
        script.assert_gone()


@pytest.mark.deadline(60)
@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["guarded", "unguarded"])
def test_a_worker_sees_the_trainers(reports: Reports, kind: str, context: str, item: str) -> None:
    report = reports(kind, context)
    expected = report["trainer"][item]
    assert CHANGED.get(item, expected) == expected, "the script does not change what it should"
    assert [worker[item] for worker in report["workers"]] == [expected] * 4


@pytest.mark.skipif(bool(SELFTEST), reason="torch forks")
@pytest.mark.parametrize("kind", ["guarded", "unguarded"])
def test_a_fresh_process_has_taken_the_place_of_the_fork(reports: Reports, known: Known, kind: str) -> None:
    reports(kind, "fresh")
    assert "workers start in a fresh process instead of a fork: dataset.lock" in known[kind, "fresh"].stderr


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["guarded", "unguarded"])
def test_the_list_of_items_is_complete(reports: Reports, kind: str, context: str) -> None:
    assert set(reports(kind, context)["trainer"]) == set(ITEMS)


DIFFERING = """
import threading
import configuration
from antifreeze import DataLoader


class Numbers:
    def __init__(self, lock=None):
        self.lock = lock

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index, sorted(configuration.REGISTRY)


if __name__ == "__main__":
    configuration.handle = Numbers()
    configuration.register("local")(lambda source=(line for line in "cannot cross"): source)
    lock = threading.Lock()
    lock.acquire()
    for _ in range(2):
        loader = DataLoader(Numbers(lock), batch_size=None, num_workers=2, multiprocessing_context="fork")
        assert [index for index, _ in loader] == [0, 1, 2, 3]
"""


@pytest.mark.skipif(bool(SELFTEST), reason="torch says nothing")
@pytest.mark.deadline(60)
def test_what_cannot_be_carried_is_named_once_and_refuses_nothing(
    run_script: Callable[..., Ended], tmp_path: Path
) -> None:
    (tmp_path / "configuration.py").write_text(CONFIGURATION)
    ended = run_script(DIFFERING, timeout=50).check()
    (line,) = [line for line in ended.stderr.splitlines() if "AF302" in line]
    assert line.startswith("antifreeze: AF302 state-differs: ")
    assert "configuration.handle is a Numbers in the program and a NoneType in its workers" in line
    assert "configuration.REGISTRY holds functions that cannot be sent to its workers" in line
