"""Which library modules a clean stem may import for its workers."""

import json
import sys
from collections.abc import Iterator
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
    "keeps_pid_in_a_path": "import os\nSCRATCH = f'/tmp/scratch_{os.getpid()}.bin'",
    "keeps_uuid": "import uuid\nSESSION = uuid.uuid4()",
    "keeps_inside": "import random\nclass State: pass\nSTATE = State()\nSTATE.rng = random.Random()",
    "keeps_in_dict": "import numpy\nTABLE = {'rng': [numpy.random.default_rng()]}",
    "keeps_in_class": "import random\nclass Augment:\n    rng = random.Random()",
    "keeps_as_default": "import torch\ndef draw(rng=torch.Generator()): return torch.rand(1, generator=rng)",
    "keeps_in_closure": "import random\ndef make(rng):\n    return lambda: rng.random()\ndraw = make(random.Random())",
    "keeps_lock": "import multiprocessing\nclass Cache:\n    lock = multiprocessing.Lock()",
    "keeps_file": "class Log:\n    file = open('/dev/null', 'w')",
    "fails": "raise ImportError('not here')",
    "fails_inside": "import nothing_of_that_name",
    "keeps_folder": "import tempfile\nclass Cache:\n    folder = tempfile.TemporaryDirectory()",
}
HARMLESS = {
    "plain": "VALUES = [1, 2]\nNAME = 'x'\nclass Thing: pass\nTHING = Thing()",
    "uses_shared": "import random, numpy\nINST = random._inst\nRAND = numpy.random.mtrand._rand",
    "uses_shared_too": "import torch\nclass Augment:\n    rng = torch.default_generator",
    "dropped": "import random\nVALUE = random.Random().random()\nwith open('/dev/null') as file: pass",
    "uses_system": "import random\nGENERATOR = random.SystemRandom()",
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(libraries.machine, "thread_names", lambda: ["one"])  # pytest and torch may have more
    for name, source in {**HAZARDOUS, **HARMLESS}.items():
        (tmp_path / f"{name}.py").write_text(source)
    yield tmp_path
    if "keeps_file" in sys.modules:
        sys.modules["keeps_file"].Log.file.close()
        sys.modules["keeps_folder"].Cache.folder.cleanup()


@pytest.mark.usefixtures("modules")
def test_modules_that_keep_what_each_process_should_have_its_own_of_are_named() -> None:
    assert import_libraries([*HAZARDOUS, *HARMLESS, "not_there"]) == set(HAZARDOUS)


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
