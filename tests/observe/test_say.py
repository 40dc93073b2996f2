"""What the user is told: once, counted, in one write, and never at the cost of the program."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from antifreeze.observe.say import say_counted, say_once, say_report

REPORT = "\n".join(f"── line {number} of the report ──" for number in range(10))


def test_the_same_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("a", "b", "a"):
        say_once(text)
    assert capsys.readouterr() == ("", "antifreeze: a\nantifreeze: b\n")


def test_the_first_three_of_a_kind_are_said_and_then_powers_of_ten(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(1, 2001):
        say_counted("deaths", f"death {number}")
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "antifreeze: death 1",
        "antifreeze: death 2",
        "antifreeze: death 3",
        "antifreeze: death 10 (x10 so far)",
        "antifreeze: death 100 (x100 so far)",
        "antifreeze: death 1000 (x1000 so far)",
    ]


def test_every_kind_has_a_count_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for cause in ("SIGKILL", "SIGSEGV"):
        for _ in range(5):
            say_counted(("death", cause), cause)
    assert capsys.readouterr().err.count("SIGSEGV") == 3


def test_a_report_is_one_write() -> None:
    reading, writing = os.pipe2(os.O_DIRECT)  # each write becomes one packet, and a read gives one packet
    try:
        code = f"from antifreeze.observe.say import say_report; say_report({REPORT!r})"
        subprocess.run([sys.executable, "-c", code], stderr=writing, check=True, timeout=150)
        os.set_blocking(reading, False)
        assert os.read(reading, 1 << 16).decode() == f"{REPORT}\n"
    finally:
        os.close(reading)
        os.close(writing)


def test_on_a_terminal_we_begin_on_a_line_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    try:
        with open(slave, "w", buffering=1) as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            terminal.write("\r 40%|####      | 4/10")
            terminal.flush()
            say_report("the report")
            say_once("a line")
            shown = ""
            while not shown.endswith("a line\r\n"):  # a terminal passes things on in its own time
                shown += os.read(master, 1 << 16).decode()
    finally:
        os.close(master)
    assert shown == "\r 40%|####      | 4/10\r\nthe report\r\n\r\nantifreeze: a line\r\n"


class OnlyWrites:
    """Like the loggers that people put in the place of stderr."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, closed(), object()], ids=["none", "closed", "object"])
def test_a_stderr_that_is_gone_costs_nothing_but_the_text(monkeypatch: pytest.MonkeyPatch, stream: object) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    say_once("a")
    say_counted("b", "b")
    say_report("c")


def test_a_pipe_that_nobody_reads_any_more_costs_nothing_but_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = open(writing, "wb", buffering=0)  # noqa: SIM115 - closed below
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(stream, write_through=True))
    say_report("c")
    stream.close()


def test_an_object_that_can_only_be_written_to_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = OnlyWrites()
    monkeypatch.setattr(sys, "stderr", stream)
    say_once("a")
    assert stream.text == "antifreeze: a\n"


def test_what_stderr_cannot_show_is_escaped_and_the_rest_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="ascii", errors="strict"))
    say_report("── stalled \udc80")
    assert raw.getvalue() == b"\\u2500\\u2500 stalled \\udc80\n"


@pytest.mark.parametrize("rank", ["0", ""])
def test_rank_zero_speaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: str) -> None:
    monkeypatch.setenv("RANK", rank)
    say_report("the report")
    assert capsys.readouterr().err == "the report\n"


def test_other_ranks_write_their_reports_to_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("RANK", "3")
    say_report("the first\n")
    say_report("the second")
    assert capsys.readouterr().err == ""
    (folder,) = (tmp_path / "state").iterdir()
    assert sorted(path.read_text() for path in folder.iterdir()) == ["the first\n", "the second\n"]
