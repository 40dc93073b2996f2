"""The doctor says nothing against scripts that are well, many of which only look sick.

All of them are read here, and one is examined; `python -m zoo.score --healthy` examines them all.
"""

import ast
import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from zoo.healthy import SCRIPTS, check_up
from zoo.judge import alarms, read_findings

from antifreeze.cli.main import main

EXAMINED = ("tar_shards",)

every_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


def described(script: Path) -> str:
    text = ast.get_docstring(ast.parse(script.read_text()))
    assert text is not None, f"{script.name} does not say what it is"
    return text


@every_script
def test_reading_a_healthy_script_gives_no_alarm(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--static", "--format", "json", str(script)])
    assert not alarms(read_findings(json.loads(capsys.readouterr().out)))


@pytest.mark.long
@pytest.mark.parametrize("name", EXAMINED)
def test_examining_a_healthy_script_gives_no_alarm(name: str) -> None:
    (script,) = (each for each in SCRIPTS if each.stem == name)
    checkup = check_up(script)
    assert checkup.is_fine, f"{checkup}\n{checkup.alarms}"


def test_there_are_enough_of_them_and_many_are_modelled_on_public_examples() -> None:
    assert len(SCRIPTS) >= 15
    modelled = [
        script for script in SCRIPTS if re.search(r"^https://github\.com/\S+$", described(script), re.MULTILINE)
    ]
    assert len(modelled) >= 8
    assert all("Looks sick: " in described(script) for script in SCRIPTS if script not in modelled)
