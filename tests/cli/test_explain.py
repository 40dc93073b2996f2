"""`antifreeze explain`: what a code means."""

import json

import pytest

from antifreeze.cli.main import main
from antifreeze.codes import NAMES


def explain(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(["explain", *words]) == status
    said = capsys.readouterr()
    return said.err if status else said.out


@pytest.mark.parametrize("word", ["AF204", "af204", "shm-too-small"])
def test_a_code_or_a_name_gives_its_page(capsys: pytest.CaptureFixture[str], word: str) -> None:
    said = explain(capsys, word)
    assert said.startswith("AF204 shm-too-small ")
    for text in ("do not fit into /dev/shm.", "What happens  ", "How we know   ", "What to do    ", "Looks like    "):
        assert text in said
    assert all(len(line) <= 100 for line in said.splitlines() if "https:" not in line)


def test_links_are_not_broken(capsys: pytest.CaptureFixture[str]) -> None:
    said = explain(capsys, "AF204")
    assert "https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies" in said.split()


def test_several_codes_give_several_pages(capsys: pytest.CaptureFixture[str]) -> None:
    said = explain(capsys, "AF902", "AF903")
    assert said.index("AF902 small-shm") < said.index("AF903 few-descriptors")


def test_all_is_a_line_for_each_problem(capsys: pytest.CaptureFixture[str]) -> None:
    lines = explain(capsys, "--all").splitlines()
    assert [line.split()[:2] for line in lines] == [[code, name] for code, name in NAMES.items()]
    assert all(line.endswith(".") for line in lines)


def test_json_is_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    page = json.loads(explain(capsys, "AF204", "--format", "json"))
    assert list(page) == ["schema", "code", "name", "family", "summary", "sections"]
    assert page["family"] == "memory and descriptors"
    assert len(json.loads(explain(capsys, "--all", "--format", "json"))) == len(NAMES)


def test_an_unknown_code_is_status_2_and_what_may_have_been_meant(capsys: pytest.CaptureFixture[str]) -> None:
    said = explain(capsys, "shm-to-small", status=2)
    assert "there is no code shm-to-small" in said
    assert "AF204 shm-too-small" in said
    assert "near" not in explain(capsys, "%%", status=2)


def test_without_a_code_it_says_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert "antifreeze explain --all" in explain(capsys, status=2)


def test_colours_are_for_those_who_ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in explain(capsys, "AF204")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert explain(capsys, "AF204").startswith("\x1b[1mAF204 shm-too-small\x1b[0m")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in explain(capsys, "AF204")
