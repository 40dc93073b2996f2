"""A loader is found by its name; whatever else the name stands for is said plainly."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from antifreeze.errors import ConfigError
from antifreeze.probes.target.named import find_loader

MODULE = """
from torch.utils.data import DataLoader

loader = DataLoader(range(8), batch_size=4)
number = 3

class Config:
    loader = DataLoader(range(8), batch_size=2)

def make():
    return DataLoader(range(8), batch_size=8)

def make_of(size, more=1):
    return DataLoader(range(size))
"""


TALKATIVE = """
import sys
assert "torch" not in sys.modules  # the order of imports is the user's
from torch.utils.data import DataLoader

def collate(samples):
    print("asked for", samples)
    return samples

loader = DataLoader(range(4), batch_size=2, collate_fn=collate)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "their_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "loaders.py").write_text(MODULE)
    (package / "broken.py").write_text("import no_such_module_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("their_package")]:
        del sys.modules[name]


@pytest.mark.parametrize(("attribute", "size"), [("loader", 4), ("Config.loader", 2), ("make", 8)])
def test_a_loader_or_a_function_that_makes_one_is_found(directory: Path, attribute: str, size: int) -> None:
    found = find_loader(f"their_package.loaders:{attribute}")
    assert isinstance(found, DataLoader) and found.batch_size == size


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("their_package.loaders", "does not name a loader"),
        ("their_package.loaders:nothing", "there is no their_package.loaders:nothing"),
        ("their_package.loaders:number", "is not a DataLoader, but a int"),
        ("their_package.loaders:make_of", "needs arguments: size"),
        ("their_package.nowhere:loader", "there is no module their_package.nowhere"),
    ],
)
def test_what_is_no_loader_is_a_fault_of_the_command(directory: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_loader(name)


def test_an_import_that_fails_inside_the_module_is_told_as_it_is(directory: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        find_loader("their_package.broken:loader")


@pytest.mark.fallback
def test_the_loader_is_iterated(directory: Path, run_script: Callable[..., Any]) -> None:
    (directory / "own.py").write_text(TALKATIVE)
    ended = run_script(
        "import runpy, sys; runpy.run_module('antifreeze.probes.target.named', run_name='__main__')",
        "own:loader",
    )
    assert ended.check().stdout == "asked for [0, 1]\n"
