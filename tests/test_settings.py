"""The variable ANTIFREEZE."""

import pytest

from antifreeze.errors import ConfigError
from antifreeze.settings import Mode, mode


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("0", Mode.OFF),
        ("off", Mode.OFF),
        ("", Mode.ON),
        ("1", Mode.ON),
        ("on", Mode.ON),
        ("require", Mode.REQUIRE),
    ],
)
def test_every_word_has_its_mode(word: str, expected: Mode) -> None:
    assert mode({"ANTIFREEZE": word}) is expected


def test_without_the_variable_the_engine_is_on() -> None:
    assert mode({}) is Mode.ON


def test_any_other_word_is_an_error_that_says_where_why_and_what_to_try() -> None:
    with pytest.raises(ConfigError) as caught:
        mode({"ANTIFREEZE": "required"})
    error = caught.value
    assert "required" in error.what
    assert error.where and error.why and error.try_
    assert isinstance(error, ValueError)


def test_the_environment_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE", "0")
    assert mode() is Mode.OFF
    monkeypatch.setenv("ANTIFREEZE", "require")
    assert mode() is Mode.REQUIRE
