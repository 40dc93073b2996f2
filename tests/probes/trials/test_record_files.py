"""What is written into the files of an examination is read again as it was."""

import dataclasses
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from antifreeze.doctor.facts import Loader, Place
from antifreeze.probes.trials.record_files import (
    LogRecords,
    WorkerFiles,
    add_record,
    has_record,
    read_state,
    read_whole,
    worker_files,
    write_whole,
)
from antifreeze.probes.trials.records import (
    LoaderShutdown,
    NoneSample,
    PrivateMemory,
    Record,
    SeenFromOutside,
    TrialStart,
    UnsentResult,
)


def example(kind: Any) -> Any:
    """Something of this type, with something in all of its fields."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return example(arguments[0])
    if origin is tuple:
        return (example(arguments[0]),)
    if origin is not None:  # a mapping
        return {"key": example(arguments[1])}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{each.name: example(hints[each.name]) for each in dataclasses.fields(kind)})  # type: ignore[operator]
    return next(iter(kind)) if issubclass(kind, StrEnum) else {int: 7, float: 0.5, bool: True, str: "text"}[kind]


@pytest.mark.parametrize("kind", typing.get_args(Record), ids=lambda kind: kind.__name__)
def test_a_line_is_read_as_it_was_written(kind: Any, tmp_path: Path) -> None:
    record = example(kind)
    add_record(tmp_path / "log", record)
    assert list(LogRecords(tmp_path / "log").all(kind)) == [record]


@pytest.mark.parametrize("kind", [TrialStart, SeenFromOutside])
def test_a_whole_file_is_read_as_it_was_written(kind: Any, tmp_path: Path) -> None:
    record = example(kind)
    write_whole(tmp_path / "file", record)
    assert read_whole(tmp_path / "file", kind) == record


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert read_whole(tmp_path / "file", Place) is None
    assert LogRecords(tmp_path / "log").last(Loader) is None


def test_the_last_record_of_a_kind_counts(tmp_path: Path) -> None:
    for seconds in (1.0, 2.0):
        add_record(tmp_path / "log", LoaderShutdown(seconds=seconds))
    add_record(tmp_path / "log", NoneSample(sample="5"))
    assert LogRecords(tmp_path / "log").last(LoaderShutdown) == LoaderShutdown(seconds=2.0)


def test_half_a_line_of_a_killed_process_is_left_out(tmp_path: Path) -> None:
    add_record(tmp_path / "log", NoneSample(sample="5"))
    with (tmp_path / "log").open("a") as log:
        log.write('NoneSample {"sam')
    assert list(LogRecords(tmp_path / "log").all(NoneSample)) == [NoneSample(sample="5")]


def test_a_line_without_its_text_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("NoneSa")
    assert not list(LogRecords(tmp_path / "log").all(NoneSample))


def test_a_kind_can_be_looked_for_without_reading_all(tmp_path: Path) -> None:
    add_record(tmp_path / "log", NoneSample(sample="UnsentResult "))
    assert has_record(tmp_path / "log", NoneSample)
    assert not has_record(tmp_path / "log", UnsentResult)


def test_the_files_of_a_worker_are_found_again(tmp_path: Path) -> None:
    files = WorkerFiles.of(tmp_path, 3, 4711)
    files.state.touch()
    add_record(files.log, example(PrivateMemory))
    assert worker_files(tmp_path) == [files]


def test_a_state_that_was_never_written_is_none(tmp_path: Path) -> None:
    assert read_state(tmp_path / "none") is None
    (tmp_path / "empty").touch()
    assert read_state(tmp_path / "empty") is None
