"""State of modules: captured in the trainer, put in place elsewhere."""

import argparse
import collections
import dataclasses
import enum
import os
import pickle
import re
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch

from antifreeze.engine.crossing import state
from antifreeze.engine.crossing.state import (
    MOST_ELEMENTS,
    ModuleState,
    Other,
    Surroundings,
    capture_modules,
    is_simple,
    settle_like_a_fork,
    settle_modules,
    tell,
)


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Options:
    size: Any = 1


class Settings(dict[str, Any]):
    """As projects have them: keys are attributes, too."""

    __getattr__ = dict.__getitem__


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
        np.zeros(3),
        np.float32(1),
        torch.zeros(3),
        range(3),
        types.SimpleNamespace(a=[1]),
        argparse.Namespace(lr=0.1),
        collections.OrderedDict(a=1),
        Options(),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", repr(value)),
)
def test_plain_data_and_references_to_code_are_simple(value: Any) -> None:
    assert is_simple(value)


@pytest.mark.parametrize(
    "value",
    [
        *(object(), [object()], {"a": {"b": object()}}, sys, looped(), [0] * MOST_ELEMENTS),
        *(np.array([object()]), np.zeros(MOST_ELEMENTS + 1), torch.zeros(MOST_ELEMENTS + 1)),
        *(torch.zeros(3, requires_grad=True), types.SimpleNamespace(a=object()), Options(object())),
    ],
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
    assert captured.others == {"handle": Other("object", {})}
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
    user_module.handle = np.zeros(MOST_ELEMENTS + 1)  # type: ignore[attr-defined]
    states = capture_modules()
    assert settle_into(monkeypatch, make_module(), states) == [
        "user_module.handle is a ndarray in the program and a object in its workers"
    ]


class Configuration:
    def __init__(self) -> None:
        self.rate, self.name, self.handle = 0.1, "a", object()


def test_an_object_of_the_users_whose_plain_attributes_differ_is_named(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_module.handle = changed = Configuration()  # type: ignore[attr-defined]
    changed.rate = 0.5
    changed.added = 1  # type: ignore[attr-defined]
    fresh = make_module()
    fresh.handle = Configuration()  # type: ignore[attr-defined]
    states = capture_modules()
    assert settle_into(monkeypatch, fresh, states) == ["user_module.handle has another added, rate in its workers"]
    user_module.handle = Configuration()  # type: ignore[attr-defined]
    assert settle_into(monkeypatch, fresh, capture_modules()) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (types.SimpleNamespace(a=1), types.SimpleNamespace(b=2)),
        (argparse.Namespace(lr=0.1), argparse.Namespace(lr=0.5)),
        (Options(1), Options(2)),
        (Settings(a=1), Settings(a=2, b=3)),
        (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
        (collections.defaultdict(list, a=1), collections.defaultdict(list, b=1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_records_are_changed_in_place(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch, before: Any, after: Any
) -> None:
    user_module.settings = after  # type: ignore[attr-defined]
    states = pickle.loads(cloudpickle.dumps(capture_modules()["user_module"]))
    fresh = make_module()
    fresh.settings = before  # type: ignore[attr-defined]
    assert settle_into(monkeypatch, fresh, {"user_module": states}) == []
    assert fresh.settings is before
    assert repr(before) == repr(after)


@pytest.mark.parametrize("after", [np.array([1.5]), torch.tensor([1.5]), np.float32(2)], ids=repr)
def test_small_arrays_are_carried(user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch, after: Any) -> None:
    user_module.limit = after  # type: ignore[attr-defined]
    states, fresh = capture_modules(), make_module()
    assert settle_into(monkeypatch, fresh, states) == []
    assert repr(fresh.limit) == repr(after)


def test_what_came_with_a_function_is_not_emptied(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, fresh = capture_modules(), make_module()
    fresh.settings = states["user_module"].simple["settings"]  # type: ignore[attr-defined]
    settle_into(monkeypatch, fresh, states)
    assert fresh.settings == {"size": 1}


def test_functions_that_would_travel_by_value_can_be_left_out_and_are_named(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_module.settings["local"] = lambda: 1
    user_module.names.append(is_simple)
    assert "settings" in capture_modules()["user_module"].simple
    states = capture_modules(by_name_only=True)
    assert "settings" not in states["user_module"].simple
    assert is_simple in states["user_module"].simple["names"]
    assert settle_into(monkeypatch, make_module(), states) == [
        "user_module.settings holds functions that cannot be sent to its workers"
    ]


def test_all_that_differs_is_told_in_one_warning_with_its_code() -> None:
    text = tell(["a.b is a x in the program and a y in its workers", "c.d has another rate in its workers"])
    assert text.startswith(
        "AF302 state-differs: a.b is a x in the program and a y in its workers; c.d has another rate"
    )
    assert "fork" in text


def test_what_a_fresh_import_does_not_make_is_not_missed(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_module.model = object()  # type: ignore[attr-defined]
    assert settle_into(monkeypatch, make_module(), capture_modules()) == []


def test_a_log_that_only_the_program_opens_is_not_missed(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_module.log = sys.stderr  # type: ignore[attr-defined]
    states = {"user_module": pickle.loads(pickle.dumps(capture_modules()["user_module"]))}
    assert states["user_module"].others["log"].kind == type(sys.stderr).__qualname__
    monkeypatch.setattr(state, "_WRITERS", (type(sys.stderr).__qualname__,))
    fresh = make_module(source=SOURCE + "\nlog = None")
    assert settle_into(monkeypatch, fresh, states) == []


def test_a_class_that_is_no_class_any_more_is_left_alone(
    user_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_module.Model.rate = 9
    states = capture_modules()
    fresh = make_module(source=SOURCE + "\nModel = None")
    settle_into(monkeypatch, fresh, states)
    assert fresh.Model is None


def capture() -> Surroundings:
    captured = state.capture_surroundings(state.MainModule(None, None, frozenset()))
    arrived: Surroundings = pickle.loads(pickle.dumps(captured))
    return arrived


def capture_settings() -> state.Settings:
    arrived: state.Settings = pickle.loads(pickle.dumps(state.capture_settings()))
    return arrived


def test_surroundings_are_captured_as_plain_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE_SEEN", "yes")
    arrived = capture()
    assert arrived.environ["ANTIFREEZE_SEEN"] == "yes"
    assert "init_main_from_path" not in arrived.preparation


class Noise(UserWarning):
    pass


set_deterministic = torch._C._set_deterministic_algorithms


@pytest.fixture
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the tests below change in this process is put back."""
    monkeypatch.setattr(torch, "use_deterministic_algorithms", set_deterministic)  # torch's own imports its compiler
    with warnings.catch_warnings(), np.errstate():
        before = capture_settings()
        yield
        torch.set_grad_enabled(True)
        set_deterministic(False)
        torch.multiprocessing.set_sharing_strategy(before.sharing_strategy)
        torch.set_default_dtype(before.default_dtype)


@pytest.mark.usefixtures("as_before")
def test_what_torch_numpy_and_warnings_were_told_is_put_in_place() -> None:
    torch.set_grad_enabled(False)
    set_deterministic(True, warn_only=True)
    torch.set_default_dtype(torch.float64)
    torch.multiprocessing.set_sharing_strategy("file_system")
    np.seterr(all="raise")
    warnings.filterwarnings("ignore", category=Noise)
    filters = list(warnings.filters)
    wanted, settings = capture(), capture_settings()
    torch.set_grad_enabled(True)
    set_deterministic(False)
    torch.set_default_dtype(torch.float32)
    torch.multiprocessing.set_sharing_strategy("file_descriptor")
    np.seterr(all="warn")
    warnings.resetwarnings()
    settle_like_a_fork(wanted, settings)
    assert not torch.is_grad_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.get_default_dtype() is torch.float64
    assert torch.multiprocessing.get_sharing_strategy() == "file_system"
    assert set(np.geterr().values()) == {"raise"}
    assert list(warnings.filters) == filters
    assert wanted.environ == dict(os.environ)


@pytest.mark.usefixtures("as_before")
def test_a_warning_of_a_module_that_comes_later_is_filtered_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings.filterwarnings("ignore", category=Noise)
    wanted = capture_settings()
    noise = (__name__, "Noise")
    late = [(*entry[:2], ("late_noise", "Noise"), *entry[3:]) for entry in wanted.warning_filters if entry[2] == noise]
    assert late
    filters = [*late, ("error", None, ("builtins", "Warning"), None, 0)]
    settle_like_a_fork(capture(), dataclasses.replace(wanted, warning_filters=filters))
    assert [entry[0] for entry in warnings.filters] == ["error"]
    (tmp_path / "late_noise.py").write_text("class Noise(UserWarning): pass")
    monkeypatch.syspath_prepend(tmp_path)
    import late_noise  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "late_noise")
    warnings.warn("not heard", late_noise.Noise, stacklevel=1)
    with pytest.raises(UserWarning):
        warnings.warn("heard", UserWarning, stacklevel=1)
