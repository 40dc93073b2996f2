"""Which library modules a clean stem may import for its workers."""

import json
import sys
from pathlib import Path

import pytest

from antifreeze.engine.crossing import libraries
from antifreeze.engine.crossing.libraries import import_libraries, within_reach

HAZARDOUS = {
    "keeps_random": "import random\nGENERATOR = random.Random()",
    "keeps_numpy": "import numpy\nGENERATOR = numpy.random.default_rng()",
    "keeps_torch": "import torch\nGENERATOR = torch.Generator()",
    "keeps_socket": "import socket\nOPEN = socket.socket.__new__(socket.socket)",
    "keeps_pid": "import os\nMAIN_PID = os.getpid()",
    "keeps_uuid": "import uuid\nSESSION = uuid.uuid4()",
    "keeps_inside": "import random\nclass State: pass\nSTATE = State()\nSTATE.rng = random.Random()",
}
HARMLESS = {
    "plain": "VALUES = [1, 2]\nNAME = 'x'\nclass Thing: pass\nTHING = Thing()",
    "uses_shared": "import random, numpy\nINST = random._inst\nRAND = numpy.random.mtrand._rand",
    "uses_system": "import random\nGENERATOR = random.SystemRandom()",
    "fails": "raise ImportError('not here')",
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(libraries.machine, "thread_names", lambda: ["one"])  # pytest and torch may have more
    for name, source in {**HAZARDOUS, **HARMLESS}.items():
        (tmp_path / f"{name}.py").write_text(source)
    return tmp_path


@pytest.mark.usefixtures("modules")
def test_modules_that_keep_what_each_process_should_have_its_own_of_are_named() -> None:
    assert import_libraries([*HAZARDOUS, *HARMLESS]) == set(HAZARDOUS)


@pytest.mark.usefixtures("modules")
def test_a_module_that_starts_a_thread_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries.machine, "thread_names", lambda: ["one"] * (1 + ("plain" in sys.modules)))
    assert import_libraries(["uses_system", "plain", "uses_shared"]) == {"plain"}


def test_what_imports_a_hazard_is_named(modules: Path) -> None:
    (modules / "outer.py").write_text("import keeps_random")
    assert import_libraries(["outer"]) == {"outer"}


def test_libraries_are_found_behind_user_modules_and_no_user_module_is(modules: Path) -> None:
    (modules / "project.py").write_text("import json\nfrom textwrap import dedent\nfrom project_more import decimal")
    (modules / "project_more.py").write_text("import decimal")
    import project  # type: ignore[import-not-found]  # noqa: F401

    found = within_reach(["project", "json.decoder", "not.there", "__main__"])
    assert {"json", "textwrap", "decimal", "json.decoder"} <= set(found)
    assert not {"project", "project_more", "__main__"} & set(found)
    assert found == [name for name in sys.modules if name in found]
    assert json.__name__ in found
