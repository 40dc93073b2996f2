"""Whether and how the main module may be imported by another process."""

import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from antifreeze.engine.crossing.main_module import (
    MainModule,
    _importable_body,
    _imports,
    describe_main,
    import_main,
    names_given,
)

GUARDED = """
import os
def function(): return 5
async def coroutine(): pass
class Class:
    def method(self): pass
if os.name == "posix":
    def conditional(): pass
value = 5
one = other = 6
left, right = 7, 8
annotated: int = 9
has_run = []
if __name__ == "__main__":
    def inside(): pass
    has_run.append("the guarded part")
"""
NAMES = frozenset(
    ["function", "coroutine", "Class", "conditional", "value", "one", "other", "left", "right", "annotated", "has_run"]
)


def _importable_names(source: str | None) -> frozenset[str] | None:
    body = _importable_body(source)
    return None if body is None else frozenset(name for statement in body for name in names_given(statement))


def test_what_is_imported_outside_the_guard_is_listed() -> None:
    body = _importable_body("""
import os, torch.nn as nn
from a.b import c
from . import near
try:
    import quick
except ImportError:
    import slow
else:
    import after
if True:
    import chosen
with open("x"):
    import within
def function():
    import late
if __name__ == "__main__":
    import wandb
""")
    assert body is not None
    assert set(_imports(body)) == {"os", "torch.nn", "a.b", "a.b.c", "quick", "slow", "after", "chosen", "within"}


def test_what_is_defined_inside_other_statements_is_importable() -> None:
    assert _importable_names("""
try:
    from quick import Base
except ImportError:
    class Base: pass
else:
    def quickened(): pass
with warnings.catch_warnings():
    for name in names:
        class Looped: pass
if __name__ == "__main__":
    def inside(): pass
else:
    def imported(): pass
""") == {"Base", "quickened", "Looped", "imported"}


def test_what_is_defined_outside_the_guard_is_importable() -> None:
    assert _importable_names(GUARDED) == NAMES


@pytest.mark.parametrize(
    "guard",
    [
        "if __name__ == '__main__': main()",
        "if '__main__' == __name__: main()",
        'if __name__ == "__main__" and True: main()',
        "if (__name__ == '__main__'):\n    main()\nelse:\n    pass",
        "__name__ == '__main__' and main()",
        "main() if __name__ == '__main__' else None",
        "try:\n    if __name__ == '__main__': main()\nexcept KeyboardInterrupt: pass",
        "if multiprocessing.current_process().name == 'MainProcess': main()",
        "if __name__ != '__main__':\n    pass\nelse:\n    def inside(): pass\n    main()",
        "None if __name__ != '__main__' else main()",
        "match __name__:\n    case '__main__':\n        def inside(): pass\n        main()",
        "if __name__.startswith('__main'):\n    def inside(): pass\n    main()",
        "if __name__ == '__main__' and len(sys.argv) != 1:\n    def inside(): pass\n    main()",
        "if not __name__ == '__main__':\n    pass\nelse:\n    def inside(): pass\n    main()",
        "if __name__ != '__mp_main__':\n    def inside(): pass\n    main()",
    ],
)
def test_a_guard_is_a_guard_however_it_is_written(guard: str) -> None:
    assert _importable_names(f"def main(): pass\n{guard}") == {"main"}


@pytest.mark.parametrize(
    "guard",
    [
        "is_main = __name__ == '__main__'\nif is_main: main()",
        "is_worker = __name__ != '__main__'\nif not is_worker: main()",
        "process = current_process().name == 'MainProcess'\nif process: main()",
        "def is_main(): return __name__ == '__main__'\nif is_main(): main()",
        "def run():\n    if __name__ == '__main__': main()\nrun()",
        "def script(function):\n    if function.__module__ == '__main__': function()\nscript(main)",
        "def script(function):\n    if function.__module__ == '__main__': function()\n@script\ndef other(): pass",
    ],
)
def test_a_guard_may_be_asked_for_elsewhere(guard: str) -> None:
    assert "main" in (_importable_names(f"def main(): pass\n{guard}") or ())


@pytest.mark.parametrize(
    "source",
    [
        None,
        "def log(text):\n    if current_process().name == 'MainProcess': print(text)\nlog('begins')",
        "",
        "def main(): pass\nmain()",
        "def f():\n    if __name__ == '__main__': pass",
        "if __name__: pass",
        "if name == '__main__': pass",
        "this is not Python",
        "x = '__main__' == __name__",
        "if __name__ != '__main__': raise ImportError",
        "match __name__:\n    case 'other': pass",
    ],
)
def test_a_script_without_a_guard_is_never_imported(source: str | None) -> None:
    assert _importable_names(source) is None


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.setitem(sys.modules, "__mp_main__", module)
    return module


def test_a_guarded_script_is_described_by_its_path(main: types.ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(GUARDED)
    main.__file__ = str(path)
    main.__package__ = None
    assert describe_main() == MainModule(str(path), None, NAMES, frozenset({"os"}))


def test_the_path_of_a_script_is_normalised_as_multiprocessing_does(main: types.ModuleType, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GUARDED)
    main.__file__ = str(tmp_path / "elsewhere" / ".." / "train.py")
    (tmp_path / "elsewhere").mkdir()
    main.__package__ = None
    assert describe_main().path == str(tmp_path / "train.py")


def test_the_main_module_of_a_package_is_not_imported(main: types.ModuleType, tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text(GUARDED)
    main.__file__ = str(tmp_path / "__main__.py")
    main.__package__ = "package"
    main.__spec__ = ModuleSpec("package.train", None)
    assert describe_main().path is not None
    main.__spec__ = ModuleSpec("package.__main__", None)
    assert describe_main() == MainModule(None, None, frozenset())


@pytest.mark.parametrize("encoded", [GUARDED.encode("utf-8-sig"), b"# coding: latin-1\n# \xe9\n" + GUARDED.encode()])
def test_a_script_is_read_in_the_encoding_that_it_says(main: types.ModuleType, tmp_path: Path, encoded: bytes) -> None:
    (tmp_path / "train.py").write_bytes(encoded)
    main.__file__ = str(tmp_path / "train.py")
    main.__package__ = None
    assert describe_main().names == NAMES


def test_an_interactive_session_has_nothing_to_import(main: types.ModuleType) -> None:
    assert describe_main() == MainModule(None, None, frozenset())


@pytest.mark.parametrize("content", [None, b"\xff\xfe not utf-8", b"main()"])
def test_a_main_module_that_cannot_be_read_or_has_no_guard_is_not_imported(
    main: types.ModuleType, tmp_path: Path, content: bytes | None
) -> None:
    main.__file__ = str(tmp_path / "train.py")
    if content is not None:
        Path(main.__file__).write_bytes(content)
    assert describe_main() == MainModule(None, None, frozenset())


def test_importing_runs_everything_but_the_guarded_part(main: types.ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(GUARDED)
    import_main(MainModule(str(path), None, frozenset()))
    imported = sys.modules["__main__"]
    assert imported is sys.modules["__mp_main__"] is not main
    assert imported.has_run == []
    assert imported.function() == 5
    assert imported.function.__globals__ is vars(imported)
    assert imported.__file__ == str(path)


def test_a_module_run_by_its_name_knows_what_it_was_run_as(
    main: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tool_of_test").mkdir()
    path = tmp_path / "tool_of_test" / "train.py"
    (tmp_path / "tool_of_test" / "__init__.py").touch()
    path.write_text(GUARDED + "\nname, source = __spec__.name, __loader__.get_data(__file__)")
    main.__file__, main.__package__ = str(path), "tool_of_test"
    main.__spec__ = ModuleSpec("tool_of_test.train", None)
    import_main(describe_main())
    del sys.modules["tool_of_test"]
    imported = sys.modules["__main__"]
    assert imported.__name__ == "__mp_main__"
    assert (imported.name, imported.source) == ("tool_of_test.train", path.read_bytes())


def test_annotations_are_what_the_script_makes_of_them(main: types.ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("class Row:\n    number: int\ndef double(x: float) -> float: return 2 * x")
    import_main(MainModule(str(path), None, frozenset()))
    imported = sys.modules["__main__"]
    assert imported.Row.__annotations__ == {"number": int}
    assert imported.double.__annotations__ == {"x": float, "return": float}


def test_what_must_not_be_imported_is_not(main: types.ModuleType) -> None:
    import_main(MainModule(None, None, frozenset()))
    assert sys.modules["__main__"] is main
