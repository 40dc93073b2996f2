"""The names that people may rely on; a change to them is visible in this file."""

import inspect
import subprocess
import sys

import pytest

import antifreeze
from antifreeze import errors

PUBLIC = [
    "AntifreezeError",
    "ArenaError",
    "CannotCross",
    "CheckpointError",
    "ConfigError",
    "DataLoader",
    "Fallback",
    "InternalError",
    "Retry",
    "SampleFailed",
    "StatefulDataLoader",
    "WorkerCrashed",
    "WorkerFrozen",
    "WorkerKilled",
    "WorkerLost",
    "__version__",
    "install",
    "packed",
    "per_worker",
    "register_kind",
    "uninstall",
]


def test_these_names_are_public() -> None:
    assert sorted(antifreeze.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(antifreeze, name) is not None
    assert name in dir(antifreeze)


def test_every_error_is_public() -> None:
    ours = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.AntifreezeError)
    }
    assert ours <= set(PUBLIC)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Dataloader'"):
        antifreeze.Dataloader  # noqa: B018


def test_install_is_the_function_also_after_its_module_was_imported() -> None:
    from antifreeze.install import install

    assert antifreeze.install is install


def test_importing_the_package_or_the_command_line_imports_neither_torch_nor_rich() -> None:
    program = "import sys, antifreeze, antifreeze.cli.main; print([m for m in ('torch', 'rich') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=150, check=True)
    assert ended.stdout == "[]\n"
