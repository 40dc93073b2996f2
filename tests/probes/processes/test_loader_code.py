"""What the doctor takes for the code of a loader is there under that name: who renames it must tell the doctor, too."""

import importlib
import os
import types
from collections.abc import Iterator
from typing import Any

import pytest

from antifreeze import machine
from antifreeze.engine.arena import segment
from antifreeze.engine.worker import birth
from antifreeze.probes.processes.loader_code import (
    ENGINES,
    OUR_LOADER,
    OUR_MEMORY,
    OUR_STEM,
    TORCH_LOADER,
    WORKERS_NAME,
    WorkerCode,
)


def module_of(file: str) -> types.ModuleType:
    return importlib.import_module(file.removesuffix(".py").replace("/", "."))


def variables(code: types.CodeType) -> Iterator[str]:
    """Of a function and of the comprehensions in it."""
    yield from (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from variables(each)


def function(module: types.ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("file", [OUR_STEM, *OUR_LOADER, TORCH_LOADER])
def test_the_files_are_there(file: str) -> None:
    assert str(module_of(file).__file__).endswith(f"/{file}")


@pytest.mark.parametrize("code", ENGINES, ids=lambda code: code.role)
def test_the_functions_of_a_worker_and_their_variables_are_there(code: WorkerCode) -> None:
    loop, fetching = module_of(code.loop_file), module_of(code.fetch_file)
    assert code.number in variables(function(loop, code.loop).__code__)
    assert {code.index, code.sample} <= set(variables(function(fetching, code.fetching).__code__))
    if code.waiting is not None:
        assert callable(getattr(loop, code.waiting))


def test_our_memory_has_the_name_that_we_look_for() -> None:
    made = segment.try_to_create(1)
    assert isinstance(made, segment.Segment)
    assert machine.has_mapped(os.getpid(), OUR_MEMORY)
    made.close_descriptor()


def test_our_workers_have_the_name_that_we_look_for() -> None:
    assert WORKERS_NAME in birth.become_worker.__code__.co_consts
