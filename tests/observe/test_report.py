"""Facts become text: in their order, folded, bounded, and without anything that is not known."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze.observe import report
from antifreeze.observe.report import Frame, Stall, death_line, end_line, is_users, stall_report
from antifreeze.observe.statistics import Statistics

PACKAGES = "/opt/venv/lib/python3.11/site-packages"
STDLIB = "/usr/lib/python3.11"
OURS = report.__file__.replace("observe/report.py", "engine/worker/fetch.py")
STACK = (
    Frame(f"{STDLIB}/socket.py", 717, "readinto", "return self._sock.recv_into(b)"),
    Frame(f"{STDLIB}/http/client.py", 300, "begin"),
    Frame(f"{PACKAGES}/urllib3/connection.py", 1, "getresponse"),
    Frame(f"{PACKAGES}/urllib3/pool.py", 1, "urlopen"),
    Frame(f"{PACKAGES}/requests/api.py", 5, "get"),
    Frame("/home/me/project/data.py", 57, "_read", "    image = requests.get(url)\n"),
    Frame("/home/me/project/data.py", 88, "__getitem__", "return self._read(index)"),
    Frame(OURS, 40, "fetch"),
)
STALL = Stall(
    seconds=12.3,
    worker=5,
    pid=9121,
    batch=813,
    epoch=3,
    rank=0,
    sample="10422",
    position=6,
    typical_s=0.041,
    frames=STACK,
    waits_in="socket",
    how_sure="likely",
    did="another worker does the same work; the first to answer is kept",
    setting="stall_after=60, if this is normal here",
    stack_file="/home/me/.local/state/antifreeze/0814-101112-4242/stall-1.txt",
)


def test_a_report_says_what_where_which_why_did_fix_set_and_more() -> None:
    assert stall_report(STALL).splitlines() == [
        "── antifreeze: worker 5 (pid 9121) made no progress for 12 s ─ epoch 3, batch 813 ─ rank 0 ──",
        " where  /home/me/project/data.py:57 in _read → image = requests.get(url)",
        "        into requests → urllib3 → http → socket, now at socket.py:717 in readinto",
        " sample 10422 (batch 813, item 6); samples here take 0.041 s",
        " why    it waits for the other end of a socket · likely",
        " did    another worker does the same work; the first to answer is kept",
        " fix    give the read a timeout: requests.get(url, timeout=10)",
        " set    stall_after=60, if this is normal here",
        " more   all stacks: /home/me/.local/state/antifreeze/0814-101112-4242/stall-1.txt",
        "─" * 78,
    ]


def test_what_is_not_known_is_not_said() -> None:
    assert stall_report(Stall(seconds=61, worker=2)).splitlines() == [
        "── antifreeze: worker 2 made no progress for 61 s ──",
        " where  not known: its stack could not be had",
        " why    not known so far",
        "─" * 78,
    ]


def test_a_stack_without_a_line_of_the_user_shows_its_innermost() -> None:
    text = stall_report(replace(STALL, frames=STACK[:2], waits_in="sleep"))
    assert " where  /usr/lib/python3.11/socket.py:717 in readinto → return self._sock.recv_into(b)\n" in text
    assert "now at" not in text
    assert " fix " not in text, "nobody is told to change a line that is not theirs"


def test_the_users_own_line_at_the_tip_has_nothing_folded_under_it() -> None:
    text = stall_report(replace(STALL, frames=STACK[5:]))
    assert "data.py:57 in _read" in text
    assert "now at" not in text


@pytest.mark.parametrize(
    ("waits_in", "why", "fix"),
    [
        ("socket", "other end of a socket", "timeout"),
        ("lock (futex)", "waits for a lock", "in the worker, on first use"),
        ("stopped (SIGSTOP)", "somebody stopped it", "kill -CONT 9121"),
        ("disk", "a disk or a file server", "/home/me/project/data.py:57"),
        ("sleep", "it sleeps", "/home/me/project/data.py:57"),
        ("pipe {0}", "it waits (pipe {0})", "/home/me/project/data.py:57"),
    ],
)
def test_every_wait_has_its_reason_and_its_cure(waits_in: str, why: str, fix: str) -> None:
    lines = {line[1:7].strip(): line[8:] for line in stall_report(replace(STALL, waits_in=waits_in)).splitlines()}
    assert why in lines["why"] and lines["why"].endswith(" · likely")
    assert fix in lines["fix"]


@pytest.mark.parametrize("pid", [None, -1])
def test_nobody_is_told_to_signal_a_process_that_is_not_known(pid: int | None) -> None:
    text = stall_report(replace(STALL, pid=pid, waits_in="stopped (SIGSTOP)"))
    assert "kill" not in text and "pid" not in text


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/me/project/data.py", True),
        ("data.py", True),
        ("<stdin>", True),
        ("/tmp/ipykernel_12/123.py", True),
        ("/home/me/python3/lib/data.py", True),
        (f"{PACKAGES}/torch/utils/data/_utils/fetch.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        (f"{STDLIB}/socket.py", False),
        ("<frozen importlib._bootstrap>", False),
        (OURS, False),
    ],
)
def test_the_users_code_is_told_from_libraries(file: str, expected: bool) -> None:
    assert is_users(Frame(file, 1, "f")) is expected


def test_a_path_that_is_too_long_loses_its_beginning() -> None:
    text = stall_report(replace(STALL, stack_file="/x" * 100 + "/0814-101112-4242/stall-1.txt"))
    (line,) = (line for line in text.splitlines() if line.startswith(" more"))
    assert len(line) <= 100
    assert "…" in line and line.endswith("/0814-101112-4242/stall-1.txt")


TEXTS = st.none() | st.text(max_size=200)
FRAMES = st.lists(
    st.builds(Frame, st.text(max_size=150), st.integers(0, 9999), st.text(max_size=80), st.text()), max_size=9
)
STALLS = st.builds(
    Stall,
    seconds=st.floats(0, 1e6),
    worker=st.integers(0, 999),
    pid=st.none() | st.integers(1, 1 << 22),
    batch=st.none() | st.integers(0, 1 << 40),
    epoch=st.none() | st.integers(0, 10**6),
    rank=st.none() | st.integers(0, 10**5),
    sample=TEXTS,
    position=st.none() | st.integers(0, 10**6),
    typical_s=st.none() | st.floats(0, 1e6),
    frames=FRAMES | st.just(STACK),
    waits_in=TEXTS | st.sampled_from(["socket", "lock", "stopped", "sleep", "disk"]),
    how_sure=st.sampled_from(["certain", "likely", "possible"]),
    did=TEXTS,
    setting=TEXTS,
    stack_file=TEXTS,
)


@settings(deadline=None)
@given(STALLS)
def test_any_report_has_at_most_ten_printable_lines_of_at_most_a_hundred(stall: Stall) -> None:
    lines = stall_report(stall).removesuffix("\n").split("\n")
    assert 4 <= len(lines) <= 10
    assert all(len(line) <= 100 and line.isprintable() for line in lines)


def test_a_death_is_one_line_with_torchs_words_first() -> None:
    line = death_line(
        worker=3,
        pid=41,
        what="DataLoader worker (pid 41) is killed by signal: Killed.",
        where="batch 3, sample 'a\nb'",
        why="the machine ran out of memory",
    )
    assert line == (
        "DataLoader worker (pid 41) is killed by signal: Killed. worker 3, batch 3, sample 'a b'; "
        "the machine ran out of memory; another worker does its work again"
    )


def test_a_death_names_the_process_if_nothing_else_does() -> None:
    line = death_line(worker=3, pid=41, what="killed by SIGSEGV", where="between batches", did="one worker fewer runs")
    assert line == "killed by SIGSEGV; worker 3 (pid 41), between batches; one worker fewer runs"


def test_the_last_line_sums_up() -> None:
    busy = Statistics(batches=1, waiting_share=0.041, stalls=2, restarts=1, samples_lost=3)
    assert end_line(busy, folder="~/x") == (
        "1 batch, 2 stalls, 1 restart, 3 lost samples, 4% of the time waiting for data (files: ~/x)"
    )
    assert end_line(Statistics(batches=20)) == "20 batches, 0% of the time waiting for data"
