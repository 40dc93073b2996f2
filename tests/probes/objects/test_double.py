"""A double answers, and whatever it does beside that stays with it."""

import ctypes
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from antifreeze.probes.objects.double import ask_double

EACH_S = 5.0


def fail() -> Any:
    raise ValueError("no")


def die() -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> Any:
    while True:
        time.sleep(60)


def hang_in_native_code() -> Any:
    ctypes.CDLL(None).pause()


def test_all_questions_are_answered() -> None:
    assert ask_double({"a": lambda: [1, "b"], "b": lambda: None}, each_s=EACH_S) == {"a": [1, "b"], "b": None}


@pytest.mark.parametrize("sick", [fail, die, object])
def test_a_question_without_an_answer_does_not_keep_the_others_from_theirs(sick: Any) -> None:
    asked = {"before": lambda: 1, "sick": sick, "after": lambda: 2}
    assert ask_double(asked, each_s=EACH_S) == {"before": 1, "after": 2}


@pytest.mark.parametrize("sick", [hang, hang_in_native_code])
def test_a_question_that_hangs_does_not_keep_the_others_from_theirs(sick: Any) -> None:
    assert ask_double({"sick": sick, "after": lambda: 2}, each_s=0.5) == {"after": 2}


def test_a_long_answer_comes_whole() -> None:
    assert ask_double({"a": lambda: "x" * 1_000_000}, each_s=EACH_S) == {"a": "x" * 1_000_000}


def test_the_program_notices_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "one\n" * 100_000  # more than is read ahead
    (tmp_path / "a").write_text(text)
    changed: list[int] = []
    state = random.getstate()
    with (tmp_path / "a").open() as file:
        file.readline()

        def act() -> int:
            print("said")
            sys.stderr.write("said")
            os.write(1, b"said")
            changed.append(random.randrange(10))
            file.seek(0)
            return len(file.read())

        assert ask_double({"a": act}, each_s=EACH_S) == {"a": len(text)}
        assert file.read() == text[4:]
    assert (changed, random.getstate()) == ([], state)
    assert capfd.readouterr() == ("", "")
