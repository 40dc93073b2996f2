"""Acting on imports: at the right moment, once, and without a trace in the module."""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from antifreeze import whenimported
from antifreeze.whenimported import when_imported

MakeModule = Callable[[str], str]


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeModule]:
    """Write a module that nobody has imported yet; gives its name."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made: list[str] = []

    def make(body: str) -> str:
        made.append(f"awaited_{len(made)}")
        (tmp_path / f"{made[-1]}.py").write_text(body)
        return made[-1]

    yield make
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def nothing_waits_after_the_test() -> Iterator[None]:
    yield
    whenimported._waiting.clear()


def test_a_module_that_is_there_is_acted_on_at_once() -> None:
    seen: list[ModuleType] = []
    when_imported("json", seen.append)
    assert seen == [importlib.import_module("json")]


def test_waiting_for_a_module_does_not_import_it(make_module: MakeModule) -> None:
    name = make_module("")
    when_imported(name, lambda module: None)
    assert name not in sys.modules


def test_the_action_runs_after_the_body_and_before_the_importer_sees_the_module(make_module: MakeModule) -> None:
    name = make_module("value = 'from the body'")
    when_imported(name, lambda module: setattr(module, "value", module.value + ", changed"))
    namespace: dict[str, Any] = {}
    exec(f"from {name} import value", namespace)
    assert namespace["value"] == "from the body, changed"


def test_actions_run_in_the_order_in_which_they_were_asked_for(make_module: MakeModule) -> None:
    name, order = make_module(""), []
    for number in range(3):
        when_imported(name, lambda _, number=number: order.append(number))
    importlib.import_module(name)
    assert order == [0, 1, 2]


def test_an_action_runs_once_also_when_the_module_is_loaded_again(make_module: MakeModule) -> None:
    name, seen = make_module(""), []
    when_imported(name, seen.append)
    module = importlib.import_module(name)
    importlib.reload(module)
    assert seen == [module]


def test_an_action_may_wait_for_another_module(make_module: MakeModule) -> None:
    first, second, seen = make_module(""), make_module(""), []
    when_imported(first, lambda _: when_imported(second, seen.append))
    importlib.import_module(first)
    assert seen == []
    module = importlib.import_module(second)
    assert seen == [module]


def test_a_submodule_can_be_awaited(tmp_path: Path, make_module: MakeModule) -> None:
    make_module("")
    package = tmp_path / "awaited_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text("value = 1")
    seen: list[int] = []
    when_imported("awaited_package.part", lambda module: seen.append(module.value))
    importlib.import_module("awaited_package")
    assert seen == []
    importlib.import_module("awaited_package.part")
    assert seen == [1]
    del sys.modules["awaited_package"], sys.modules["awaited_package.part"]


def test_an_import_that_fails_leaves_the_action_waiting(make_module: MakeModule, tmp_path: Path) -> None:
    name, seen = make_module("raise ImportError('not today')"), []
    when_imported(name, seen.append)
    with pytest.raises(ImportError, match="not today"):
        importlib.import_module(name)
    assert seen == []
    (tmp_path / f"{name}.py").write_text("# a longer body, so that no cache takes it for the same")
    importlib.invalidate_caches()
    module = importlib.import_module(name)
    assert seen == [module]


def test_a_module_that_does_not_exist_is_still_not_found() -> None:
    when_imported("no_such_module_anywhere", lambda module: None)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        importlib.import_module("no_such_module_anywhere")


def test_an_action_that_raises_is_one_line_on_stderr_and_the_import_succeeds(
    make_module: MakeModule, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(module: ModuleType) -> None:
        raise ValueError("two\nlines")

    name, seen = make_module("value = 1"), []
    when_imported(name, fail)
    when_imported(name, seen.append)
    assert importlib.import_module(name).value == 1
    assert len(seen) == 1, "the next action runs all the same"
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"antifreeze: could not act on the import of {name}: ValueError: two lines\n"


def test_whoever_waits_may_want_the_import_to_fail_instead(make_module: MakeModule) -> None:
    def fail(module: ModuleType) -> None:
        raise ValueError("fault of the action")

    def insist(name: str, fault: Exception) -> None:
        raise RuntimeError(f"{name} cannot be used") from fault

    name = make_module("")
    when_imported(name, fail, on_fault=insist)
    with pytest.raises(RuntimeError, match="cannot be used"):
        importlib.import_module(name)


def test_the_module_keeps_its_true_loader_also_while_its_body_runs(make_module: MakeModule) -> None:
    name = make_module("loaders = [__loader__, __spec__.loader]")
    when_imported(name, lambda module: None)
    module = importlib.import_module(name)
    loaders = [*module.loaders, module.__loader__, module.__spec__ and module.__spec__.loader]
    assert [type(loader) for loader in loaders] == [SourceFileLoader] * 4


def test_looking_for_a_module_without_importing_it_shows_its_loader_and_does_not_act(make_module: MakeModule) -> None:
    name, seen = make_module("value = 1"), []
    when_imported(name, seen.append)
    spec = importlib.util.find_spec(name)
    assert spec is not None and isinstance(spec.loader, SourceFileLoader)
    assert spec.loader.get_source(name) == "value = 1"
    assert seen == []
    importlib.import_module(name)
    assert len(seen) == 1


def test_a_lazily_loaded_module_is_acted_on_when_its_body_runs(make_module: MakeModule) -> None:
    name, seen = make_module("value = 1"), []
    when_imported(name, lambda module: seen.append(module.value))
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert seen == []
    assert module.value == 1
    assert seen == [1]


def test_frozen_and_built_in_modules_can_be_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("__hello__", "xxsubtype")
    seen: list[str] = []
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
        when_imported(name, lambda module: seen.append(module.__name__))
        importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
    assert seen == list(names)


def test_a_body_that_puts_another_object_in_its_place_is_acted_on_as_that_object(make_module: MakeModule) -> None:
    name = make_module("import sys, types; sys.modules[__name__] = types.SimpleNamespace(is_the_other=True)")
    seen: list[Any] = []
    when_imported(name, seen.append)
    importlib.import_module(name)
    assert seen[0].is_the_other


def test_a_module_that_another_thread_is_importing_is_awaited(make_module: MakeModule) -> None:
    body_began, body_may_end = threading.Event(), threading.Event()
    name = make_module("import threading\nhooks = threading.hooks\nhooks[0].set()\nhooks[1].wait(10)\nvalue = 1\n")
    threading.hooks = body_began, body_may_end  # type: ignore[attr-defined]
    importer = threading.Thread(target=importlib.import_module, args=(name,))
    importer.start()
    assert body_began.wait(10)
    seen: list[int] = []
    waiter = threading.Thread(target=when_imported, args=(name, lambda module: seen.append(module.value)))
    waiter.start()
    waiter.join(0.05)
    assert seen == []
    body_may_end.set()
    waiter.join(10)
    importer.join(10)
    del threading.hooks  # type: ignore[attr-defined]
    assert seen == [1]


class AnotherTool:
    """A tool like ours that asks all finders, itself left out, as wrapt does."""

    def __init__(self) -> None:
        self._is_asking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if self._is_asking:
            return None
        self._is_asking = True
        try:
            return importlib.util.find_spec(name)
        finally:
            self._is_asking = False


@pytest.mark.parametrize("is_in_front", [True, False], ids=["in front of ours", "behind ours"])
def test_another_tool_of_this_kind_does_not_get_in_the_way(
    make_module: MakeModule, monkeypatch: pytest.MonkeyPatch, is_in_front: bool
) -> None:
    name, seen = make_module(""), []
    when_imported(name, seen.append)
    place = sys.meta_path.index(whenimported._finder) + (not is_in_front)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path[:place], AnotherTool(), *sys.meta_path[place:]])
    module = importlib.import_module(name)
    assert seen == [module]
    assert type(module.__loader__) is SourceFileLoader
