"""State of modules: captured in the trainer, put in place elsewhere."""

import enum
import pickle
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze.engine.crossing import state
from antifreeze.engine.crossing.state import MOST_ELEMENTS, ModuleState, capture_modules, is_simple, settle_modules


class Colour(enum.Enum):
    RED = 1


def looped() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        5,
        1.5,
        2j,
        "text",
        b"bytes",
        Path("/x"),
        Colour.RED,
        re.compile("x"),
        torch.float16,
        int,
        is_simple,
        [],
        {"a": [1, (2, {3}), frozenset({4})]},
        {"train": is_simple, "classes": [Colour]},
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", repr(value)),
)
def test_plain_data_and_references_to_code_are_simple(value: Any) -> None:
    assert is_simple(value)


@pytest.mark.parametrize(
    "value",
    [object(), np.zeros(3), torch.zeros(3), [object()], {"a": {"b": object()}}, sys, looped(), [0] * MOST_ELEMENTS],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_not(value: Any) -> None:
    assert not is_simple(value)


SOURCE = """
import os
from pathlib import Path
limit = 5
names = ["a"]
settings = {"size": 1}
_private = "kept too"
handle = object()
def function(): return limit
class Model:
    rate = 0.1
    registry = {}
    def method(self): pass
    _tensor = object()
"""


def make_module(name: str = "user_module", source: str = SOURCE) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__file__ = f"/home/somebody/{name}.py"
    exec(source, vars(module))
    return module


@pytest.fixture
def user_module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = make_module()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def settle_into(monkeypatch: pytest.MonkeyPatch, fresh: types.ModuleType, states: dict[str, ModuleState]) -> list[str]:
    monkeypatch.setitem(sys.modules, fresh.__name__, fresh)
    return settle_modules({fresh.__name__: states[fresh.__name__]})


def test_globals_and_class_attributes_are_captured(user_module: types.ModuleType) -> None:
    captured = capture_modules()["user_module"]
    assert captured.simple == {"limit": 5, "names": ["a"], "settings": {"size": 1}, "_private": "kept too"}
    assert captured.types_of_others == {"handle": "object"}
    assert captured.class_attributes == {"Model": {"rate": 0.1, "registry": {}}}


def test_modules_of_libraries_and_our_own_are_left_alone() -> None:
    captured = capture_modules()
    assert not {"os", "torch", "numpy", "antifreeze", "antifreeze.errors"} & set(captured)


def test_switches_of_libraries_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import ImageFile

    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert capture_modules()["PIL.ImageFile"].simple["LOAD_TRUNCATED_IMAGES"] is True


def test_what_the_program_has_changed_is_put_in_place(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_module.limit = 50  # type: ignore[attr-defined]
    user_module.names.append("b")
    user_module.settings["size"] = 2
    user_module.added = "new"  # type: ignore[attr-defined]
    user_module.Model.rate = 0.5
    user_module.Model.registry["x"] = 1
    states = capture_modules()
    fresh = make_module()
    imported_elsewhere = (fresh.names, fresh.settings, fresh.Model.registry)
    assert settle_into(monkeypatch, fresh, states) == []
    assert fresh.limit == 50 and fresh.function() == 50 and fresh.added == "new"
    assert imported_elsewhere == (["a", "b"], {"size": 2}, {"x": 1})  # in place: others may hold the very objects
    assert fresh.Model.rate == 0.5
    assert fresh.Model.registry is imported_elsewhere[2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("limit = 5", "limit = 5.0"),
        ("limit = 1", "limit = True"),
        ("settings = {'size': 1}", "settings = {'size': 1.0}"),
        ("names = [0]", "names = [False]"),
        ("names = ['a']", "names = ('a',)"),
        ("names = {1}", "names = {2}"),
        ("settings = {'a': 1, 'b': 2}", "settings = {'b': 2, 'a': 1}"),
    ],
)
def test_a_value_arrives_exactly_as_it_is(before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed, fresh = make_module(source=after), make_module(source=before)
    monkeypatch.setitem(sys.modules, "user_module", changed)
    states = capture_modules()
    settle_into(monkeypatch, fresh, states)
    (name,) = (name for name in ("limit", "names", "settings") if hasattr(fresh, name))
    assert repr(getattr(fresh, name)) == repr(getattr(changed, name))


def test_what_is_not_simple_and_has_another_type_is_named(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_module.handle = np.zeros(3)  # type: ignore[attr-defined]
    states = capture_modules()
    assert settle_into(monkeypatch, make_module(), states) == [
        "user_module.handle is a ndarray in the program and a object in its workers"
    ]


def test_what_a_fresh_import_does_not_make_is_not_missed(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_module.model = object()  # type: ignore[attr-defined]
    assert settle_into(monkeypatch, make_module(), capture_modules()) == []


def test_a_class_that_is_no_class_any_more_is_left_alone(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_module.Model.rate = 9
    states = capture_modules()
    fresh = make_module(source=SOURCE + "\nModel = None")
    settle_into(monkeypatch, fresh, states)
    assert fresh.Model is None


def test_surroundings_are_captured_as_plain_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE_SEEN", "yes")
    captured = state.capture_surroundings(state.MainModule(None, None, frozenset()))
    arrived = pickle.loads(pickle.dumps(captured))
    assert arrived.environ["ANTIFREEZE_SEEN"] == "yes"
    assert arrived.default_dtype is torch.get_default_dtype()
    assert arrived.preparation["sys_path"] == captured.preparation["sys_path"]
    assert "init_main_from_path" not in arrived.preparation
