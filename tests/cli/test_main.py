"""The command line as a whole."""

import pytest

import antifreeze
from antifreeze.cli.main import main


def test_alone_it_prints_what_to_type_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    for line in ("antifreeze run train.py", "antifreeze demo", "from antifreeze import DataLoader", "ANTIFREEZE=0"):
        assert line in said


def test_it_knows_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"antifreeze {antifreeze.__version__}\n"


@pytest.mark.parametrize("words", [["fly"], ["run"], ["run", "-m"], ["run", "-m", "--stats"], ["demo", "quickly"]])
def test_what_it_does_not_understand_is_usage_and_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "usage: antifreeze" in capsys.readouterr().err
