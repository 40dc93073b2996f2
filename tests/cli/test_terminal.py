"""Colours, widths, and a line of progress that leaves nothing behind."""

import io
from typing import NoReturn

import pytest

from antifreeze.cli.terminal import ERASE, progress_on, put, wants_colour, width_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def usual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("stream", "environ", "is_coloured"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        (io.StringIO(), {}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_is_for_terminals_and_for_those_who_insist(
    stream: io.StringIO, environ: dict[str, str], is_coloured: bool
) -> None:
    assert wants_colour(stream, environ) == is_coloured


def test_progress_is_one_line_that_is_drawn_again_and_then_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    with progress_on(stream) as progress:
        progress.show("torch, 2 workers")
        progress.show("antifreeze, 2 workers, batch 3")
    assert stream.getvalue() == f"{ERASE}torch, 2 workers{ERASE}antifreeze, 2 work…{ERASE}"


def test_an_interrupted_progress_is_gone_as_well() -> None:
    stream = Terminal()

    def interrupted() -> NoReturn:
        with progress_on(stream) as progress:
            progress.show("torch")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue().endswith(ERASE)


@pytest.mark.parametrize(("stream", "term"), [(io.StringIO(), "xterm"), (Terminal(), "dumb")])
def test_where_nothing_can_be_redrawn_progress_is_silent(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    with progress_on(stream) as progress:
        progress.show("torch, 2 workers")
    assert stream.getvalue() == ""


def test_lines_end_where_a_terminal_ends_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert width_of(Terminal()) == 77
    assert width_of(io.StringIO()) is None


def test_what_an_encoding_lacks_is_no_error() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    put("✓ done", to=stream)
    stream.seek(0)
    assert stream.read() == "\\u2713 done\n"
