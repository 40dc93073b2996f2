"""Every option: words of the environment, keyword arguments, what goes before what, and what is refused."""

import dataclasses
import inspect
import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.utils.data
from torch.utils.data import IterableDataset

from antifreeze import DataLoader, Retry, StatefulDataLoader
from antifreeze.errors import ConfigError
from antifreeze.options import OPTIONS, Mode, Option, Options, environment, mode, options_of
from antifreeze.policy import DEFAULT_MAX_LOST, Policy


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


# --- the other variables


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("ANTIFREEZE_ON_ERROR", "skip", {"on_error": "skip"}),
        ("ANTIFREEZE_RETRY", "3", {"retries": 3}),
        ("ANTIFREEZE_RETRY", "0", {"retries": 0}),
        ("ANTIFREEZE_MAX_LOST", "20", {"max_lost": 20}),
        ("ANTIFREEZE_MAX_LOST", "1%", {"max_lost": 0.01}),
        ("ANTIFREEZE_MAX_LOST", "0.01", {"max_lost": 0.01}),
        ("ANTIFREEZE_MAX_LOST", "100%", {"max_lost": 1.0}),
        ("ANTIFREEZE_STALL_AFTER", "10", {"stall_after_s": 10.0}),
        ("ANTIFREEZE_STALL_AFTER", "10s", {"stall_after_s": 10.0}),
        ("ANTIFREEZE_STALL_AFTER", "2m", {"stall_after_s": 120.0}),
        ("ANTIFREEZE_STALL_AFTER", "0.5h", {"stall_after_s": 1800.0}),
        ("ANTIFREEZE_SAMPLE_TIMEOUT", "5m", {"sample_timeout_s": 300.0}),
        ("ANTIFREEZE_HEDGE", "0", {"hedge": False}),
        ("ANTIFREEZE_REPLAY", "0", {"replay": False}),
        ("ANTIFREEZE_FIX", "rng,stale", {"fix": frozenset({"rng", "stale"})}),
        ("ANTIFREEZE_LEDGER", "a/ledger.jsonl", {"ledger_file": Path("a/ledger.jsonl")}),
        ("ANTIFREEZE_STATS", "1", {"stats": True}),
        ("ANTIFREEZE_STATS", "", {}),
    ],
)
def test_every_variable_is_read(variable: str, text: str, expected: dict[str, Any]) -> None:
    said = environment({variable: text, "UNRELATED": "x"})
    assert said == expected
    assert [type(value) for value in said.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("ANTIFREEZE_ON_ERROR", "ignore"),
        ("ANTIFREEZE_RETRY", "-1"),
        ("ANTIFREEZE_RETRY", "often"),
        ("ANTIFREEZE_RETRY", "1.5"),
        ("ANTIFREEZE_MAX_LOST", "101%"),
        ("ANTIFREEZE_MAX_LOST", "-1"),
        ("ANTIFREEZE_MAX_LOST", "1.5"),
        ("ANTIFREEZE_MAX_LOST", "0%"),
        ("ANTIFREEZE_MAX_LOST", "nan"),
        ("ANTIFREEZE_MAX_LOST", "few"),
        ("ANTIFREEZE_STALL_AFTER", "0"),
        ("ANTIFREEZE_STALL_AFTER", "s"),
        ("ANTIFREEZE_STALL_AFTER", "inf"),
        ("ANTIFREEZE_STALL_AFTER", "nan"),
        ("ANTIFREEZE_STALL_AFTER", "soon"),
        ("ANTIFREEZE_HEDGE", "no"),
        ("ANTIFREEZE_REPLAY", "no"),
        ("ANTIFREEZE_FIX", "rng, stale"),
        ("ANTIFREEZE_LEDGER", "directory/"),
        ("ANTIFREEZE_STATS", "yes"),
    ],
)
def test_a_word_that_means_nothing_is_refused_with_its_variable(variable: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        environment({variable: text})
    error = caught.value
    assert text in error.what
    assert error.where == f"environment variable {variable}"
    assert error.why and error.try_ and error.try_.startswith(f"{variable}=")
    environment({variable: error.try_.partition("=")[2]})  # what it says to try can be tried


# --- keyword arguments


def test_without_a_word_from_anybody_the_defaults_hold() -> None:
    options = options_of(DataLoader([1]), {})
    assert options == Options()
    assert options.policy.is_strict
    assert (options.stall_after_s, options.one_blocked_s, options.all_blocked_s) == (10, 300, 1800)


def test_every_argument_is_an_option() -> None:
    loader = DataLoader(
        [1],
        on_error=Retry(2, backoff_s=1, then="skip"),
        max_lost=7,
        stall_after=5,
        sample_timeout=60,
        hedge=False,
        replay=False,
        fix=("rng", "stale"),
        seeding="ticket",
        ledger_file="ledger.jsonl",
    )
    options = options_of(loader, {})
    assert options == Options(
        Policy("skip", 2, 1.0, 7),
        5.0,
        60.0,
        False,
        False,
        frozenset({"rng", "stale"}),
        "ticket",
        Path("ledger.jsonl"),
        watch_s=5.0,
    )
    assert (options.one_blocked_s, options.all_blocked_s) == (60, 60)


ENVIRON = {
    "ANTIFREEZE_ON_ERROR": "replace",
    "ANTIFREEZE_RETRY": "4",
    "ANTIFREEZE_MAX_LOST": "5",
    "ANTIFREEZE_STALL_AFTER": "2m",
    "ANTIFREEZE_HEDGE": "0",
}


def test_an_argument_goes_before_the_environment_and_that_before_the_default() -> None:
    torchs = options_of(torch.utils.data.DataLoader([1]), ENVIRON)
    assert torchs == Options(Policy("replace", 4, 0.1, 5), 120.0, hedge=False, watch_s=120.0)
    ours = options_of(DataLoader([1], on_error="skip", hedge=True), ENVIRON)
    assert ours == Options(Policy("skip", 0, 0.0, 5), 120.0, hedge=True, watch_s=120.0)


def test_raise_can_be_said_against_the_environment() -> None:
    assert options_of(DataLoader([1], on_error="raise"), ENVIRON).policy.is_strict


def test_retry_of_the_environment_without_on_error_raises_in_the_end() -> None:
    assert options_of(DataLoader([1]), {"ANTIFREEZE_RETRY": "2"}).policy == Policy("raise", 2, 0.1, DEFAULT_MAX_LOST)


def test_another_loaders_attributes_of_the_same_name_are_not_ours() -> None:
    class Theirs(torch.utils.data.DataLoader[Any]):
        on_error = "whatever it means to them"
        hedge = 3

    assert options_of(Theirs([1]), {}) == Options()


@pytest.mark.parametrize(
    "argument",
    [
        {"on_error": "ignore"},
        {"on_error": 3},
        {"on_error": []},
        {"max_lost": -1},
        {"max_lost": 1.5},
        {"max_lost": 0.0},
        {"max_lost": True},
        {"max_lost": "1%"},
        {"stall_after": 0},
        {"stall_after": float("nan")},
        {"stall_after": "10s"},
        {"sample_timeout": -5},
        {"hedge": 1},
        {"replay": "no"},
        {"fix": "everything"},
        {"fix": ("rng", "magic")},
        {"fix": 3},
        {"worker_threads": 0},
        {"worker_threads": "2"},
        {"worker_threads": True},
        {"seeding": "random"},
        {"ledger_file": ""},
        {"ledger_file": 3},
    ],
    ids=str,
)
def test_an_argument_that_cannot_work_is_refused_when_the_loader_is_built(argument: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        DataLoader([1], **argument)
    (name,) = argument
    assert caught.value.where == name and caught.value.why and caught.value.try_


def test_a_variable_that_cannot_work_is_refused_when_the_loader_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE_RETRY", "often")
    with pytest.raises(ConfigError, match="ANTIFREEZE_RETRY"):
        DataLoader([1])


def test_when_antifreeze_is_off_its_variables_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE_RETRY", "often")
    monkeypatch.setenv("ANTIFREEZE", "0")
    DataLoader([1])


def test_every_public_attribute_of_a_loader_is_an_argument_so_that_clients_can_rebuild_it() -> None:
    loader = DataLoader([1, 2], on_error=Retry(2, then="skip"), max_lost=0.5, ledger_file=Path("ledger"))
    public = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    parameters = inspect.signature(DataLoader.__init__).parameters
    ours = {"on_error", "max_lost", "stall_after", "sample_timeout", "hedge", "ledger_file", "worker_threads"}
    assert ours <= set(public) & set(parameters)
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in ours)
    again = DataLoader([1, 2], **{name: public[name] for name in ours})
    assert options_of(again, {}) == options_of(loader, {}) == options_of(pickle.loads(pickle.dumps(loader)), {})


# --- the table


@pytest.mark.parametrize("loader", [DataLoader, StatefulDataLoader])
def test_the_table_has_every_argument_of_ours_and_no_other(loader: type[torch.utils.data.DataLoader[int]]) -> None:
    torchs = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    own = set(inspect.signature(loader.__init__).parameters) - set(torchs) - {"future", "snapshot_every_n_steps"}
    assert own - {"in_order"} == {option.argument for option in OPTIONS if option.argument is not None}


def test_the_table_has_every_field_of_the_options() -> None:
    fields = {field.name for field in dataclasses.fields(Options)} - {"policy", "watch_s"}
    assert fields == {option.name for option in OPTIONS} - {"on_error", "retries", "max_lost"}


@pytest.mark.parametrize("option", [each for each in OPTIONS if each.argument], ids=lambda option: option.name)
def test_every_argument_is_explained_to_those_who_ask_the_class(option: Option) -> None:
    assert f"`{option.argument}`:" in (DataLoader.__doc__ or "")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_what_a_refusal_says_to_try_can_be_tried(option: Option) -> None:
    assert option.values.check(option.values.example) is not None
    if option.variable is not None:
        assert option.values.parse(option.values.example_of_text) is not None


def test_numbers_of_numpy_are_numbers() -> None:
    loader = DataLoader([1], max_lost=np.int64(3), stall_after=np.float32(5), worker_threads=np.int64(2))
    options = options_of(loader, {})
    assert (options.policy.max_lost, options.stall_after_s, options.worker_threads) == (3, 5.0, 2)


# --- Retry


def test_retry_can_be_compared_pickled_and_not_changed() -> None:
    retry = Retry(2, backoff_s=0.5, then="replace")
    assert pickle.loads(pickle.dumps(retry)) == retry != Retry()
    with pytest.raises(AttributeError):
        retry.times = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    "arguments",
    [{"times": 0}, {"times": 1.5}, {"times": True}, {"backoff_s": -1}, {"backoff_s": float("inf")}, {"then": "retry"}],
    ids=str,
)
def test_a_retry_that_cannot_work_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Retry(**arguments)
    assert next(iter(arguments)) in caught.value.what


# --- replace


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return itertools.count()


class WithoutLength(torch.utils.data.Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("dataset", "more"),
    [
        (Endless(), {}),
        (WithoutLength(), {"sampler": [1, 2]}),
        ({"a": 1}, {"sampler": ["a"]}),
        ([1, 2], {"sampler": ["a", "b"]}),
        ([1, 2], {"batch_sampler": [["a"], ["b"]]}),
    ],
    ids=["iterable", "no length", "keys", "sampler", "batch sampler"],
)
@pytest.mark.parametrize("on_error", ["replace", Retry(then="replace")])
def test_replace_is_refused_where_no_other_index_can_be_drawn(
    dataset: Any, more: dict[str, Any], on_error: Any
) -> None:
    with pytest.raises(ConfigError, match="replace") as caught:
        DataLoader(dataset, on_error=on_error, **more)
    assert caught.value.where == "on_error"
    skipping = DataLoader(dataset, on_error="skip", **more)
    assert options_of(skipping, ENVIRON).policy.then == "skip"


def test_replace_of_the_environment_is_refused_with_its_variable() -> None:
    with pytest.raises(ConfigError) as caught:
        options_of(torch.utils.data.DataLoader({"a": 1}, sampler=["a"]), ENVIRON)  # type: ignore[arg-type]
    assert caught.value.where == "environment variable ANTIFREEZE_ON_ERROR"


@pytest.mark.parametrize("more", [{}, {"shuffle": True}, {"sampler": range(2)}, {"batch_sampler": [[0], [1]]}], ids=str)
def test_replace_works_with_indices_that_are_integers(more: dict[str, Any]) -> None:
    assert options_of(DataLoader([1, 2], on_error="replace", **more), {}).policy.then == "replace"
