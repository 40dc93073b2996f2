"""Putting the engine behind torch's name, and taking it away: with torch's own module, and with a small stand-in for
torch where only the order of events matters."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data.dataloader as torch_dataloader

import antifreeze
from antifreeze.errors import ConfigError
from antifreeze.inline import ZeroIterator
from antifreeze.iterator import Iterator as OurIterator
from user_scripts import Ended

RunScript = Callable[..., Ended]
TORCHS_OWN = torch_dataloader._MultiProcessingDataLoaderIter
TORCHS_SINGLE = torch_dataloader._SingleProcessDataLoaderIter


def present() -> Any:
    return torch_dataloader._MultiProcessingDataLoaderIter


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    assert present() is TORCHS_OWN
    yield
    antifreeze.uninstall()
    torch_dataloader._MultiProcessingDataLoaderIter = TORCHS_OWN


def test_install_puts_our_subclass_behind_torchs_name() -> None:
    antifreeze.install()
    assert present() is OurIterator
    assert issubclass(OurIterator, TORCHS_OWN)
    assert torch_dataloader._SingleProcessDataLoaderIter is ZeroIterator
    assert issubclass(ZeroIterator, TORCHS_SINGLE)


def test_uninstall_brings_torchs_own_class_back() -> None:
    antifreeze.install()
    antifreeze.uninstall()
    assert present() is TORCHS_OWN
    assert torch_dataloader._SingleProcessDataLoaderIter is TORCHS_SINGLE


def test_both_may_be_called_again_and_again() -> None:
    for _ in range(2):
        antifreeze.install()
        antifreeze.install()
        assert present() is OurIterator
        antifreeze.uninstall()
        antifreeze.uninstall()
        assert present() is TORCHS_OWN


def test_uninstall_leaves_a_class_that_somebody_put_over_ours() -> None:
    antifreeze.install()

    class Theirs(OurIterator):
        pass

    torch_dataloader._MultiProcessingDataLoaderIter = Theirs
    antifreeze.uninstall()
    assert present() is Theirs


def test_uninstall_brings_back_what_was_there_and_not_what_torch_once_had() -> None:
    class Patched(TORCHS_OWN):  # type: ignore[misc, valid-type]
        pass

    torch_dataloader._MultiProcessingDataLoaderIter = Patched
    antifreeze.install()
    antifreeze.uninstall()
    assert present() is Patched


@pytest.mark.parametrize("word", ["0", "off"])
def test_nothing_is_installed_when_antifreeze_is_off(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE", word)
    antifreeze.install()
    assert present() is TORCHS_OWN


def test_a_mode_that_does_not_exist_is_an_error_of_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE", "perhaps")
    with pytest.raises(ConfigError, match="perhaps"):
        antifreeze.install()
    assert present() is TORCHS_OWN


@pytest.mark.long
def test_whoever_copies_the_name_after_import_torch_gets_ours(run_script: RunScript) -> None:
    run_script("""
import sys
import antifreeze
antifreeze.install()
assert "torch" not in sys.modules
import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as copied
from antifreeze.iterator import Iterator
assert copied is Iterator
assert type(torch.__loader__).__name__ == type(torch.__spec__.loader).__name__ == "SourceFileLoader"
""").check()


# --- the order of events, on a stand-in for torch (a hundred times as fast)

STAND_IN = {
    "torch/__init__.py": "import torch.utils.data\nis_complete = True\n",
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "from torch.utils.data import dataloader\n",
    "torch/utils/data/dataloader.py": "class _MultiProcessingDataLoaderIter: pass\n"
    "class _SingleProcessDataLoaderIter: pass\n",
}
OUR_ITERATOR = """
import sys, types
sys.modules["antifreeze.iterator"] = iterator = types.ModuleType("antifreeze.iterator")
iterator.Iterator = type("Iterator", (), {})
sys.modules["antifreeze.inline"] = inline = types.ModuleType("antifreeze.inline")
inline.ZeroIterator = type("ZeroIterator", (), {})
"""
OUR_BROKEN_ITERATOR = """
import sys
sys.modules["antifreeze.inline"] = sys.modules["antifreeze.iterator"] = None  # importing it is an ImportError now
"""
WHO = "\nprint(torch.utils.data.dataloader._MultiProcessingDataLoaderIter.__name__)"


@pytest.fixture
def run_on_stand_in(tmp_path: Path, run_script: RunScript) -> RunScript:
    for name, body in STAND_IN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(body)
    return run_script


def test_the_engine_is_imported_only_after_torch_is_complete(run_on_stand_in: RunScript, tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(
        "import torch; assert torch.is_complete\nclass Iterator: pass\nZeroIterator = Iterator\n"
    )
    ended = run_on_stand_in(f"""
import sys, antifreeze
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("antifreeze.inline", "antifreeze.iterator"):
            import engine
            sys.modules[name] = engine
            return engine.__spec__
sys.meta_path.insert(0, Finder())
antifreeze.install()
import torch{WHO}""").check()
    assert ended.stdout == "Iterator\n"


def test_a_torch_that_loads_its_data_package_on_demand_is_met_too(run_on_stand_in: RunScript, tmp_path: Path) -> None:
    (tmp_path / "torch" / "__init__.py").write_text("")
    ended = run_on_stand_in(
        f"{OUR_ITERATOR}\nimport antifreeze; antifreeze.install()\nimport torch\nimport torch.utils.data{WHO}"
    ).check()
    assert ended.stdout == "Iterator\n"


def test_what_is_uninstalled_before_torch_is_imported_is_never_installed(run_on_stand_in: RunScript) -> None:
    ended = run_on_stand_in(
        f"{OUR_ITERATOR}\nimport antifreeze; antifreeze.install(); antifreeze.uninstall()\nimport torch{WHO}"
    ).check()
    assert ended.stdout == "_MultiProcessingDataLoaderIter\n"


def test_antifreeze_may_be_switched_off_until_torch_is_imported(run_on_stand_in: RunScript) -> None:
    ended = run_on_stand_in(
        f"{OUR_ITERATOR}\nimport antifreeze, os; antifreeze.install()\nos.environ['ANTIFREEZE'] = '0'\nimport torch{WHO}"
    ).check()
    assert ended.stdout == "_MultiProcessingDataLoaderIter\n"


def test_a_fault_of_ours_is_one_line_and_leaves_torch_alone(run_on_stand_in: RunScript) -> None:
    ended = run_on_stand_in(
        f"{OUR_BROKEN_ITERATOR}\nimport antifreeze; antifreeze.install()\nimport torch{WHO}", env={"ANTIFREEZE": ""}
    ).check()
    assert ended.stdout == "_MultiProcessingDataLoaderIter\n"
    assert ended.stderr.startswith("antifreeze: could not act on the import of torch.utils.data.dataloader: ")
    assert ended.stderr.count("\n") == 1


def test_a_fault_of_ours_is_an_error_when_the_engine_is_required(run_on_stand_in: RunScript) -> None:
    ended = run_on_stand_in(
        f"{OUR_BROKEN_ITERATOR}\nimport antifreeze; antifreeze.install()\nimport torch", env={"ANTIFREEZE": "require"}
    )
    assert ended.returncode == 1
    assert "InternalError: ANTIFREEZE=require" in ended.stderr
    assert "import of antifreeze.inline halted" in ended.stderr
