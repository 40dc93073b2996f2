"""What deviated from a calm run: kept in memory, counted, and in a file whatever happens to the trainer."""

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze.observe import ledger as ledger_module
from antifreeze.observe.ledger import MOST_OF_EXCEPTION, MOST_RECORDS, Facts, Kind, Ledger, Record


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def filled(ledger: Ledger, count: int) -> Ledger:
    for number in range(count):
        ledger.add(Kind.STALL, f"stall {number}", batch=number)
    return ledger


# --- in memory


def test_a_record_is_a_line_of_json_without_what_is_not_known() -> None:
    record = Record(Kind.STALL, "no progress", 12.5, worker=0, stack="a\nb")
    assert record.as_json() == '{"kind": "stall", "what": "no progress", "time_s": 12.5, "worker": 0, "stack": "a\\nb"}'


def test_add_gives_the_record_with_its_time() -> None:
    ledger = Ledger(clock=lambda: 7.0)
    record = ledger.add(Kind.WORKER_REPLACED, "a worker\n  ended", worker=3, signal="SIGKILL")
    assert record == Record(Kind.WORKER_REPLACED, "a worker ended", 7.0, worker=3, signal="SIGKILL")
    assert list(ledger) == [record]


def test_every_optional_field_of_a_record_is_a_fact() -> None:
    assert {"kind", "what", "time_s", *Facts.__annotations__} == set(Record.__dataclass_fields__)


def test_the_newest_records_are_kept_and_the_counts_are_of_all() -> None:
    ledger = filled(Ledger(), MOST_RECORDS + 3)
    assert (len(ledger), ledger.dropped) == (MOST_RECORDS, 3)
    assert (ledger[0].batch, ledger[-1].batch) == (3, MOST_RECORDS + 2)
    assert ledger.counts == {Kind.STALL: MOST_RECORDS + 3}
    assert ledger.counts[Kind.HEDGE_WON] == 0


def test_a_ledger_is_read_like_a_list() -> None:
    ledger = filled(Ledger(), 4)
    assert [record.batch for record in ledger[1:3]] == [1, 2]
    assert ledger[-1].batch == 3
    with pytest.raises(IndexError):
        ledger[4]
    assert not Ledger()


def test_a_ledger_can_grow_while_it_is_read() -> None:
    ledger = filled(Ledger(), 3)
    assert [ledger.add(Kind.HEDGE_STARTED, "x").kind for _ in ledger] == [Kind.HEDGE_STARTED] * 3


def test_the_counts_given_out_cannot_change_the_ledger() -> None:
    ledger = filled(Ledger(), 1)
    ledger.counts[Kind.STALL] = 100
    assert ledger.counts[Kind.STALL] == 1


def test_a_ledger_says_how_it_is_in_one_line() -> None:
    ledger = filled(Ledger(most=2), 3)
    ledger.add(Kind.HEDGE_WON, "x")
    assert repr(ledger) == "<Ledger: 3 stall, 1 hedge-won; the oldest 2 are no longer kept>"
    assert repr(Ledger()) == "<Ledger: nothing happened>"


def test_long_texts_keep_their_beginning_and_their_end() -> None:
    record = Ledger().add(Kind.ERROR_RAISED, "x" * 10**6, exception="begin" + "x" * 10**6 + "end", stack="s" * 10**6)
    assert record.exception is not None and len(record.exception) <= MOST_OF_EXCEPTION
    assert record.exception.startswith("beginx") and record.exception.endswith("xend")
    assert len(record.as_json()) < 20_000


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda ledger: pickle.loads(pickle.dumps(ledger))])
def test_a_copy_is_equal_and_does_not_write_to_the_file(tmp_path: Path, copied: Callable[[Ledger], Ledger]) -> None:
    ledger = filled(Ledger(tmp_path / "ledger", most=2), 3)
    twin = copied(ledger)
    assert twin == ledger and twin.dropped == 1
    filled(twin, 3)
    assert twin != ledger and len(twin) == 2
    assert len(lines_of(tmp_path / "ledger")) == 3


# --- any sequence

TEXTS = st.text(max_size=30)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "worker": st.integers(0, 64),
        "pid": st.integers(1, 1 << 22),
        "batch": st.integers(0, 1 << 40),
        "sample": TEXTS,
        "attempt": st.integers(1, 5),
        "exception": TEXTS,
        "signal": st.sampled_from(["SIGKILL", "SIGSEGV"]),
        "exitcode": st.integers(-64, 255),
        "stack": TEXTS | st.none(),
    },
)
ADDS = st.lists(st.tuples(st.sampled_from(Kind), TEXTS, FACTS), max_size=30)


@settings(deadline=None)
@given(adds=ADDS, most=st.integers(1, 12))
def test_of_any_sequence_the_newest_are_kept_all_are_counted_and_all_are_in_the_file(
    adds: list[tuple[Kind, str, Facts]], most: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ledger")
        ledger = Ledger(path, most=most)
        records = [ledger.add(kind, what, **facts) for kind, what, facts in adds]
        lines = path.read_text("ascii").splitlines()
    assert list(ledger) == records[-most:]
    assert ledger.counts == Counter(kind for kind, _, _ in adds)
    assert ledger.dropped == max(0, len(adds) - most)
    assert [Record(**{**json.loads(line), "kind": Kind(json.loads(line)["kind"])}) for line in lines] == records
    assert pickle.loads(pickle.dumps(ledger)) == ledger


# --- the file

ENDLESS = """
import sys
from antifreeze.observe.ledger import Kind, Ledger

ledger = Ledger(sys.argv[1])
number = 0
while True:
    ledger.add(Kind.STALL, "x" * 400, batch=number, stack="y" * 7000)
    print(number, flush=True)
    number += 1
"""


def test_what_was_noted_before_the_trainer_was_killed_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with subprocess.Popen([sys.executable, "-c", ENDLESS, str(path)], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        try:
            for _ in range(200):
                trainer.stdout.readline()
        finally:
            trainer.kill()
        noted = 200 + len(trainer.stdout.readlines())
    assert trainer.returncode == -signal.SIGKILL
    whole = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    assert [line["batch"] for line in whole[:noted]] == list(range(noted))
    assert len(whole) <= noted + 1, "the last may have been written and not told"


def test_the_next_trainer_does_not_write_onto_a_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_text('{"kind": "stall", "wh')
    filled(Ledger(path), 2)
    assert [json.loads(line)["batch"] for line in path.read_text().splitlines()[1:]] == [0, 1]


def test_a_forked_child_and_the_trainer_write_to_the_same_file(tmp_path: Path) -> None:
    ledger = filled(Ledger(tmp_path / "ledger"), 1)
    pid = os.fork()
    if pid == 0:
        filled(ledger, 2)
        os._exit(0)
    os.waitpid(pid, 0)
    ledger.add(Kind.HEDGE_WON, "after")
    assert [line["kind"] for line in lines_of(tmp_path / "ledger")] == ["stall", "stall", "stall", "hedge-won"]
    assert len(ledger) == 2


def test_a_calm_run_leaves_an_empty_file_that_others_cannot_read(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger")
    status = (tmp_path / "ledger").stat()
    assert (status.st_size, status.st_mode & 0o777) == (0, 0o600)


def test_the_file_stays_where_it_was_when_the_program_changes_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("ledger")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    filled(ledger, 1)
    assert len(lines_of(tmp_path / "ledger")) == 1


def test_no_descriptor_is_kept(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    ledger = filled(Ledger(tmp_path / "ledger"), 1)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert len(ledger) == 1


# --- trouble with the file


def in_the_way(tmp_path: Path, what: str) -> str:
    if what == "pipe":
        os.mkfifo(tmp_path / "pipe")
    return {"folder": str(tmp_path), "missing": str(tmp_path / "no" / "ledger"), "nul": "a\0b"}.get(
        what, str(tmp_path / "pipe")
    )


@pytest.mark.parametrize("what", ["folder", "missing", "nul", "pipe"])
def test_a_file_that_cannot_be_opened_is_said_once_and_recorded_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    ledger = Ledger(in_the_way(tmp_path, what))
    assert capsys.readouterr().err.count("antifreeze: the ledger cannot be written") == 1
    filled(ledger, 3)
    assert capsys.readouterr().err == ""
    assert ledger.counts == {Kind.LEDGER_TROUBLE: 1, Kind.STALL: 3}
    assert ledger[0].what.startswith("the ledger cannot be written to ")


def test_a_full_disk_costs_lines_of_the_file_and_nothing_else(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    largest_file: Callable[[int], AbstractContextManager[None]],
) -> None:
    path = tmp_path / "ledger"
    ledger = filled(Ledger(path), 1)
    room = path.stat().st_size + 10
    with largest_file(room):
        filled(ledger, 3)
    assert path.stat().st_size == room, "a part of a line"
    said = capsys.readouterr().err
    assert said.count("part of a line") == 1 and said.count("File too large") == 1
    assert ledger.counts == {Kind.STALL: 4, Kind.LEDGER_TROUBLE: 2}

    ledger.add(Kind.HEDGE_WON, "there is room again")
    ledger.add(Kind.HEDGE_WON, "and still is")
    first, cut, gap, _, last = path.read_text().splitlines()
    assert (json.loads(first)["batch"], json.loads(last)["kind"]) == (0, "hedge-won")
    assert json.loads(gap)["what"] == "records before the next that could not be written: 3"
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut)


def test_a_file_ends_at_its_largest_size_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ledger_module, "MOST_BYTES", 1000)
    path = tmp_path / "ledger"
    first, second = filled(Ledger(path), 50), Ledger(path)
    lines = lines_of(path)
    assert lines[-1]["what"] == "this file has reached its largest size and ends here"
    assert lines[-1]["kind"] == "ledger-trouble" and lines[-1]["time_s"] > 0
    assert [line["batch"] for line in lines[:-1]] == list(range(len(lines) - 1))
    assert 800 < path.stat().st_size < 1200
    for ledger in (first, second):
        ledger.add(Kind.STALL, "x")
    assert lines_of(path) == lines, "neither those who ended it nor others add to it"
    assert first.counts == {Kind.STALL: 51, Kind.LEDGER_TROUBLE: 1}
    assert capsys.readouterr().err.count("antifreeze: ") == 1


def test_a_file_that_was_moved_away_is_followed_by_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = filled(Ledger(path), 1)
    path.rename(tmp_path / "ledger.1")
    ledger.add(Kind.HEDGE_WON, "x")
    assert [line["kind"] for line in lines_of(path)] == ["hedge-won"]
