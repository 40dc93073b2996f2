"""The rules of the house, kept by reading the source: layers, purity, and "the only file that".

Each rule is a function from a file (its module name and its syntax tree) to the lines that break it. The tests below run
every rule over every file of the package, and over small sick examples, so that we know it would notice.
"""

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src"
PACKAGE = ROOT / "antifreeze"

# Imported where the user has them, and not needed otherwise.
OPTIONAL_MODULES = {"numpy", "h5py", "lmdb"}
# Required, and run as programs instead of being imported.
PROGRAMS = {"py-spy"}

# A file imports from lower lines or from its own package; names on one line do not import each other.
LAYERS = """
__main__ | bootstrap
cli
probes
antifreeze
stateful
loader | install | packing
adoption
resuming_alone
resuming
iterator | inline | drawing
engine.epoch
engine.inline | engine.intake
engine.tickets
engine.crew
engine.outcomes | engine.supervisor
engine.hedging | engine.misgivings
engine.succession
engine.sharing
engine.chronicle | engine.orders | engine.times
engine.witness | engine.wording | engine.pinning | engine.consultation | engine.marks
torch_side.self_check
torch_side.trial
engine.pool
engine.backends
engine.seclusion
engine.worker
engine.staleness
engine.wire | engine.flow | engine.crossing | engine.supervise | engine.turns
engine.plan | engine.arena
observe
doctor
options | machine | whenimported | resources | hook | engine.numbers | engine.intent | engine.forks | engine.showing
torch_side
option_values
policy
errors
codes
"""


@dataclass(frozen=True)
class Files:
    """Files of the package, by patterns: `engine/plan/` is everything below, `engine/plan/seeds.py` one file."""

    patterns: tuple[str, ...]

    def covers(self, path: Path) -> bool:
        inside = path.relative_to(PACKAGE).as_posix()
        return any(inside.startswith(each) if each.endswith("/") else inside == each for each in self.patterns)


PURE = Files(
    (
        "engine/plan/",
        "engine/flow/",
        "engine/supervise/",
        "engine/wording.py",
        "observe/report.py",
        "doctor/",
        "engine/arena/slots.py",
        "engine/pool/lifecycle.py",
        "engine/backends/choice.py",
    )
)
ALONE = Files(("demo/",))  # programs that run on torch as well
IMPURE_MODULES = {"os", "time", "threading", "multiprocessing", "random", "torch"}


@dataclass(frozen=True)
class Power:
    """Something dangerous that has one home."""

    what: str
    uses: str
    """Matches the dotted names of functions and modules, as `os.kill`, that have this power."""
    home: Files
    texts: str = r"(?!)"
    """Matches strings that have it."""


POWERS = (
    # The second home is not the engine's: the demo and the doctor end programs that they started themselves.
    Power(
        "killing", r"os\.kill(pg)?|.*\bpidfd_send_signal", Files(("engine/backends/process.py", "probes/bounded.py"))
    ),
    # The second home maps files of the user's again, and no memory of ours.
    Power(
        "shared memory",
        r"mmap(\..*)?|.*\bmemfd_create|.*\bshared_memory(\..*)?",
        Files(("engine/arena/segment.py", "engine/crossing/kinds/mappings.py")),
    ),
    Power("/proc and /sys", r"(?!)", Files(("machine/",)), texts=r"/(proc|sys)(/.*)?"),
    Power("seeds", r".*\bmanual_seed(_all)?|(.*\.)?random\.seed", Files(("engine/worker/birth.py", "demo/"))),
)

TORCH_SIDE = Files(("torch_side/",))
"""The only files that use private names of torch's, and of torchdata's."""

SOURCES = sorted(PACKAGE.rglob("*.py"))
Breach = tuple[int, str]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# --- reading a file


@functools.cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


def imported_names(tree: ast.Module, *, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every import of the file, also inside functions and for type checking only, as (line, dotted name)."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = absolute(node, module=module, is_package=is_package)
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def absolute(node: ast.ImportFrom, *, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    above = module.split(".")
    above = above[: len(above) - node.level + is_package]
    return ".".join([*above, *([node.module] if node.module else [])])


@functools.cache
def used_names(tree: ast.Module) -> frozenset[tuple[int, str]]:
    """Every dotted name in the code, as (line, `os.kill`), with `import … as` and `from … import` seen through."""
    meant = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            meant.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and not node.level:
            meant.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    found = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            first, _, rest = ast.unparse(node).partition(".")
            found.add((node.lineno, ".".join(filter(None, [meant.get(first, first), rest]))))
    return frozenset(found)


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string in the code, the pieces of f-strings and bytes included; docstrings are prose."""
    prose = {id(node.value) for node in nodes_of(tree) if isinstance(node, ast.Expr)}
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in prose:
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode("latin-1")


# --- the rules


def place_of(name: str) -> tuple[int, str] | None:
    """The line of LAYERS that a module of ours belongs to, counted from the top, and its name there."""
    if name == "antifreeze":
        name = "antifreeze.antifreeze"
    inside = name.removeprefix("antifreeze.")
    for line, names in enumerate(LAYERS.split("\n")):
        for each in names.split(" | "):
            if each and f"{inside}.".startswith(f"{each}."):
                return line, each
    return None


def breaches_of_layers(tree: ast.Module, *, module: str, is_package: bool) -> Iterator[Breach]:
    place = place_of(module)
    for line, name in imported_names(tree, module=module, is_package=is_package):
        if name.split(".")[0] != "antifreeze":
            continue
        target = place_of(name) or place_of("antifreeze")  # what is in no layer is a name of the facade
        assert target is not None
        if place is None or (target != place and target[0] <= place[0]):
            yield line, f"{module} must not import {name}"


def breaches_of_purity(tree: ast.Module, *, module: str, is_package: bool) -> Iterator[Breach]:
    for line, name in imported_names(tree, module=module, is_package=is_package):
        if name.split(".")[0] in IMPURE_MODULES:
            yield line, f"{module} is pure and must not import {name}"


def breaches_of_power(tree: ast.Module, power: Power) -> Iterator[Breach]:
    for line, name in {*used_names(tree), *imported_names(tree, module="", is_package=False)}:
        if re.fullmatch(power.uses, name):
            yield line, f"{name}: {power.what} has its home in {', '.join(power.home.patterns)}"
    for line, text in texts(tree):
        if re.fullmatch(power.texts, text, re.DOTALL):
            yield line, f"{text!r}: {power.what} has its home in {', '.join(power.home.patterns)}"


def private_names_of_torch(tree: ast.Module) -> Iterator[Breach]:
    """Imports, attributes and texts that name what torch keeps to itself, also what is private in objects of torch_side.

    A private argument counts (`TypedStorage(…, _internal=True)`), and so does a private attribute of a tensor, a storage
    or a loader, whatever it is asked of. What an iterator of ours inherits (`self._base_seed`) is its own.
    """
    where = "private names of torch are used in torch_side alone"
    for line, name in {*used_names(tree), *imported_names(tree, module="", is_package=False)}:
        first, *rest = name.split(".")
        is_torchs = first in ("torch", "torchdata") or name.startswith("antifreeze.torch_side.")
        if is_torchs and re.fullmatch(r"[\w.]+", name) and any(re.match(r"_[^_]", part) for part in rest):
            yield line, f"{name}: {where}"
    for node in nodes_of(tree):
        if (
            isinstance(node, ast.Attribute)
            and PRIVATE_ATTRIBUTES.fullmatch(node.attr)
            and ast.unparse(node.value) != "self"
        ):
            yield node.lineno, f"{ast.unparse(node)}: {where}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("torch."):
            for keyword in node.keywords:
                if (keyword.arg or "").startswith("_"):
                    yield node.lineno, f"{ast.unparse(node.func)}({keyword.arg}=…): {where}"
    for line, text in texts(tree):
        if re.fullmatch(r"torch(data)?[./:]([\w./:]+[./:])?_[a-zA-Z][\w./:]*", text) or text in PRIVATE_NAMES:
            yield line, f"{text!r}: {where}"


PRIVATE_ATTRIBUTES = re.compile(
    "_(cdata|base|version|is_view|(un)?typed_storage|share_(fd|filename)_cpu_|new_shared_(fd|filename)_cpu|swap_data_ptr_|"
    "weak_ref|auto_collation|dataset_kind|index_sampler)"
)
PRIVATE_NAMES = (
    "_BaseDataLoaderIter",
    "_MultiProcessingDataLoaderIter",
    "_SingleProcessDataLoaderIter",
    "_worker_loop",
)


def foreign_modules(tree: ast.Module) -> Iterator[Breach]:
    """The modules that it imports from other distributions, here or for type checkers only."""
    for node in nodes_of(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            module = name.partition(".")[0]
            if module not in sys.stdlib_module_names and module not in ("antifreeze", "sitecustomize"):
                yield node.lineno, module


def declared_requirements() -> set[str]:
    """The distributions that pyproject.toml asks for, without the extras."""
    document = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return {re.match(r"[\w-]+", text)[0] for text in document["project"]["dependencies"]}  # type: ignore[index]


def unexplained_nets(source: str) -> Iterator[Breach]:
    """Whoever catches everything and does not raise says why, beside `except` or below it."""
    lines = source.split("\n")
    handlers = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler))
    for handler in handlers:
        is_net = catches_everything(handler) and not isinstance(handler.body[-1], ast.Raise)
        if is_net and not any("#" in line for line in lines[handler.lineno - 1 : handler.body[0].lineno]):
            yield handler.lineno, "catches everything and does not say why"


def catches_everything(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or bool(re.search(r"\b(Base)?Exception\b", ast.unparse(handler.type)))


# --- the rules, over the package


@dataclass(frozen=True)
class File:
    path: Path
    module: str
    is_package: bool
    source: str
    tree: ast.Module


def read(path: Path) -> File:
    source = path.read_text(encoding="utf-8")
    return File(path, module_name(path), path.name == "__init__.py", source, ast.parse(source))


@pytest.fixture(scope="module")
def files() -> list[File]:
    return [read(path) for path in SOURCES]


def assert_none(breaches: Iterable[tuple[File, Breach]]) -> None:
    found = [f"{file.path}:{line}: {text}" for file, (line, text) in breaches]
    assert not found, "\n" + "\n".join(found)


def test_a_file_imports_from_lower_layers_only(files: list[File]) -> None:
    assert_none(
        (file, breach)
        for file in files
        if file.module != "antifreeze"  # the facade names everything, and loads it when it is used
        for breach in breaches_of_layers(file.tree, module=file.module, is_package=file.is_package)
    )


def test_every_file_has_a_place_in_the_layers(files: list[File]) -> None:
    def is_only_a_docstring(file: File) -> bool:
        return file.is_package and len(file.tree.body) == 1

    homeless = [
        file
        for file in files
        if not place_of(file.module) and not is_only_a_docstring(file) and not ALONE.covers(file.path)
    ]
    assert_none((file, (1, f"{file.module} is not in LAYERS")) for file in homeless)


def test_programs_of_the_demo_import_nothing_of_ours(files: list[File]) -> None:
    assert_none(
        (file, (line, f"{file.module} must not import {name}"))
        for file in files
        if ALONE.covers(file.path)
        for line, name in imported_names(file.tree, module=file.module, is_package=file.is_package)
        if name.split(".")[0] == "antifreeze"
    )


def test_a_pure_file_imports_nothing_that_acts(files: list[File]) -> None:
    assert_none(
        (file, breach)
        for file in files
        if PURE.covers(file.path)
        for breach in breaches_of_purity(file.tree, module=file.module, is_package=file.is_package)
    )


@pytest.mark.parametrize("power", POWERS, ids=lambda power: power.what)
def test_every_dangerous_power_has_one_home(power: Power, files: list[File]) -> None:
    assert_none(
        (file, breach)
        for file in files
        if not power.home.covers(file.path)
        for breach in breaches_of_power(file.tree, power)
    )


def test_private_names_of_torch_are_used_in_torch_side_alone(files: list[File]) -> None:
    assert_none(
        (file, breach)
        for file in files
        if not TORCH_SIDE.covers(file.path)
        for breach in private_names_of_torch(file.tree)
    )


def test_what_is_imported_is_required_and_what_is_required_is_imported(files: list[File]) -> None:
    imported = {module for file in files for _, module in foreign_modules(file.tree)}
    assert imported - OPTIONAL_MODULES == declared_requirements() - PROGRAMS
    assert imported >= OPTIONAL_MODULES


def test_every_file_says_what_it_is_for(files: list[File]) -> None:
    assert_none((file, (1, "has no docstring")) for file in files if not ast.get_docstring(file.tree))


def test_whoever_catches_everything_says_why(files: list[File]) -> None:
    assert_none((file, breach) for file in files for breach in unexplained_nets(file.source))


# --- sick examples: the rules notice


def layers_broken_by(source: str, *, module: str, is_package: bool = False) -> bool:
    return any(breaches_of_layers(ast.parse(source), module=module, is_package=is_package))


@pytest.mark.parametrize(
    "source",
    [
        "from antifreeze.engine.epoch import Epoch",
        "from antifreeze.engine import epoch",
        "import antifreeze.loader",
        "from antifreeze import DataLoader",
        "import antifreeze",
        "from ..pool import pool",
        "from antifreeze.engine.flow import dispatch",
        "def later():\n    from antifreeze.engine.worker import main",
        "if TYPE_CHECKING:\n    from antifreeze.iterator import Iterator",
    ],
)
def test_an_import_from_above_or_beside_is_noticed(source: str) -> None:
    assert layers_broken_by(source, module="antifreeze.engine.wire.channel")


@pytest.mark.parametrize(
    "source",
    [
        "from antifreeze.engine.wire.messages import Filled",
        "from .messages import Filled",
        "from ..arena import slots",
        "from antifreeze.engine.numbers import SlotNo",
        "from antifreeze.errors import InternalError",
        "import os",
    ],
)
def test_an_import_from_below_or_from_the_same_package_is_fine(source: str) -> None:
    assert not layers_broken_by(source, module="antifreeze.engine.wire.channel")


def test_an_import_by_a_package_itself_is_relative_to_the_package() -> None:
    assert layers_broken_by("from .. import pool", module="antifreeze.engine.wire", is_package=True)
    assert not layers_broken_by("from . import messages", module="antifreeze.engine.wire", is_package=True)


@pytest.mark.parametrize("source", ["import time", "from os import path", "import torch.nn", "import os.path as p"])
def test_an_impure_import_is_noticed(source: str) -> None:
    assert any(breaches_of_purity(ast.parse(source), module="antifreeze.engine.plan.plan", is_package=False))


@pytest.mark.parametrize(
    ("what", "source"),
    [
        ("killing", "import os\nos.kill(1, 9)"),
        ("killing", "import os as system\nsystem.killpg(1, 9)"),
        ("killing", "from os import kill as end\nend(1, 9)"),
        ("killing", "import signal\nsignal.pidfd_send_signal(fd, 9)"),
        ("shared memory", "import mmap"),
        ("shared memory", "from mmap import mmap"),
        ("shared memory", "libc.memfd_create(b'', 0)"),
        ("shared memory", "from multiprocessing import shared_memory"),
        ("/proc and /sys", "open(f'/proc/{pid}/stat')"),
        ("/proc and /sys", "Path('/sys/fs/cgroup')"),
        ("/proc and /sys", "open(b'/proc/self/fd')"),
        ("seeds", "import torch\ntorch.manual_seed(0)"),
        ("seeds", "import random\nrandom.seed(0)"),
        ("seeds", "import numpy as np\nnp.random.seed(0)"),
        ("seeds", "from random import seed\nseed(0)"),
    ],
)
def test_a_power_away_from_home_is_noticed(what: str, source: str) -> None:
    (power,) = (power for power in POWERS if power.what == what)
    assert any(breaches_of_power(ast.parse(source), power))


@pytest.mark.parametrize(
    "source",
    ["'''/proc is mentioned in prose'''", "process.kill()", "seed = base_seed + worker", "path = '/systems/a'"],
)
def test_what_only_looks_like_a_power_is_fine(source: str) -> None:
    assert not [breach for power in POWERS for breach in breaches_of_power(ast.parse(source), power)]


@pytest.mark.parametrize(
    "source",
    [
        "from torch._utils import ExceptionWrapper",
        "from torch.utils.data._utils import worker",
        "import torch.utils.data._utils.worker as worker",
        "from torch.utils.data.dataloader import _BaseDataLoaderIter",
        "from torch.utils.data import dataloader\ndataloader._BaseDataLoaderIter",
        "import torch\ntorch._C._dispatch_keys(tensor)",
        "import torch as t\nt._utils",
        "def later():\n    from torch.autograd import profiler\n    return profiler._is_profiler_enabled",
        "from torchdata.stateful_dataloader import stateful_dataloader as theirs\ntheirs._MultiProcessing",
        "import torch\ntorch.TypedStorage(wrap_storage=storage, _internal=True)",
        "tensor.untyped_storage()._cdata",
        "from antifreeze.torch_side.workers import collating\ncollating._table",
        "module == 'torch._utils'",
        "loaded('torch.utils.data.dataloader:_BaseDataLoaderIter')",
        "getattr(dataloader, '_MultiProcessingDataLoaderIter')",
    ],
)
def test_a_private_name_of_torch_is_noticed(source: str) -> None:
    assert any(private_names_of_torch(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.__version__",
        "self._base_seed = 0\nsuper()._reset(loader)",
        "from multiprocessing.reduction import ForkingPickler\nForkingPickler._extra_reducers",
        "from antifreeze.torch_side.loaders import BaseIterator\nBaseIterator.__init__(self, loader)",
        "'torch._utils is mentioned in prose'",
    ],
)
def test_what_is_not_private_to_torch_is_fine(source: str) -> None:
    assert not list(private_names_of_torch(ast.parse(source)))


@pytest.mark.parametrize("source", ["import psutil", "def f():\n  from psutil import Process", "import psutil.x as y"])
def test_an_import_from_another_distribution_is_noticed(source: str) -> None:
    assert [module for _, module in foreign_modules(ast.parse(source))] == ["psutil"]


@pytest.mark.parametrize("source", ["import os.path", "from . import psutil", "from antifreeze import errors"])
def test_other_imports_are_not_from_another_distribution(source: str) -> None:
    assert not list(foreign_modules(ast.parse(source)))


def test_a_net_without_a_reason_is_noticed() -> None:
    assert any(unexplained_nets("try:\n    pass\nexcept Exception:\n    pass\n"))
    assert not any(unexplained_nets("try:\n    pass\nexcept Exception:  # because\n    pass\n"))
    assert not any(unexplained_nets("try:\n    pass\nexcept Exception as e:\n    # because\n    pass\n"))
    assert not any(unexplained_nets("try:\n    pass\nexcept BaseException:\n    tidy_up()\n    raise\n"))
