"""What is written into the files of an examination is read again as it was."""

import dataclasses
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from antifreeze.doctor.facts import Loader, Place
from antifreeze.probes.trials import record_files, records


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


@pytest.mark.parametrize("kind", typing.get_args(records.Record), ids=lambda kind: kind.__name__)
def test_a_line_is_read_as_it_was_written(kind: Any, tmp_path: Path) -> None:
    record = example(kind)
    record_files.add_record(tmp_path / "log", record)
    assert list(record_files.LogRecords(tmp_path / "log").all(kind)) == [record]


@pytest.mark.parametrize("kind", [records.TrialStart, records.SeenFromOutside])
def test_a_whole_file_is_read_as_it_was_written(kind: Any, tmp_path: Path) -> None:
    record = example(kind)
    record_files.write_whole(tmp_path / "file", record)
    assert record_files.read_whole(tmp_path / "file", kind) == record


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert record_files.read_whole(tmp_path / "file", Place) is None
    assert record_files.LogRecords(tmp_path / "log").last(Loader) is None


def test_the_last_record_of_a_kind_counts(tmp_path: Path) -> None:
    for seconds in (1.0, 2.0):
        record_files.add_record(tmp_path / "log", records.LoaderShutdown(seconds=seconds))
    record_files.add_record(tmp_path / "log", records.NoneSample(sample="5"))
    assert record_files.LogRecords(tmp_path / "log").last(records.LoaderShutdown) == records.LoaderShutdown(seconds=2.0)


def test_half_a_line_of_a_killed_process_is_left_out(tmp_path: Path) -> None:
    record_files.add_record(tmp_path / "log", records.NoneSample(sample="5"))
    with (tmp_path / "log").open("a") as log:
        log.write('records.NoneSample {"sam')
    assert list(record_files.LogRecords(tmp_path / "log").all(records.NoneSample)) == [records.NoneSample(sample="5")]


def test_a_line_without_its_text_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("NoneSa")
    assert not list(record_files.LogRecords(tmp_path / "log").all(records.NoneSample))


def test_a_kind_can_be_looked_for_without_reading_all(tmp_path: Path) -> None:
    record_files.add_record(tmp_path / "log", records.NoneSample(sample="UnsentResult "))
    assert record_files.has_record(tmp_path / "log", records.NoneSample)
    assert not record_files.has_record(tmp_path / "log", records.UnsentResult)


def test_the_files_of_a_worker_are_found_again(tmp_path: Path) -> None:
    files = record_files.WorkerFiles.of(tmp_path, 3, 4711)
    files.state.touch()
    record_files.add_record(files.log, example(records.PrivateMemory))
    assert record_files.worker_files(tmp_path) == [files]


def test_a_state_that_was_never_written_is_none(tmp_path: Path) -> None:
    assert record_files.read_state(tmp_path / "none") is None
    (tmp_path / "empty").touch()
    assert record_files.read_state(tmp_path / "empty") is None
