"""A test that leaves a process, thread, descriptor, `/dev/shm` entry or temporary file behind has failed.

So has one that takes longer than its deadline. All tests run under `ANTIFREEZE=require`, except those marked `fallback`,
and the session ends with a line that says which loaders ran on our engine.
"""

import gc
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

sys.path.insert(0, str(Path(__file__).parent))

from antifreeze.observe import say
from leftovers import (
    Mark,
    Session,
    Snapshot,
    kill,
    leftovers,
    new_processes,
    reap,
    stop_base_process,
    stop_resource_tracker,
    take,
    wait_until,
)
from modules_aside import ModulesAside
from user_scripts import SELFTEST, Ended, Script, selftest_text

HERE = Path(__file__).parent
GRACE_S = 3.0
# Only what hangs takes so long: on a busy machine a test may take many times as long as on a quiet one.
DEADLINE_S = 300.0
SCRIPT_DEADLINE_S = 150.0
OPEN_FILES = 4096
SESSION = pytest.StashKey[Session]()
FAILED = pytest.StashKey[bool]()
ours = ModulesAside(HERE.parent, but=("src", ".venv"))
# How long an example takes says what else the machine does.
hypothesis_settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fallback: the test may use torch's own iterator (ANTIFREEZE is not set)")
    config.addinivalue_line("markers", "long(but=0): all but so many of its cases are left to `make test-long`")
    config.addinivalue_line("markers", "scan: a search through drawn examples, of which `make test-long` tries more")
    config.addinivalue_line("markers", f"deadline(seconds): the test fails after this time (default {DEADLINE_S})")
    # torch warns when a loader has more workers than the machine has cores; that says nothing about a test
    config.addinivalue_line("filterwarnings", "ignore:This DataLoader will create:UserWarning")
    # torch 2.12 warns of every first sparse tensor of a process, in workers of its own, too
    config.addinivalue_line("filterwarnings", "ignore:Sparse invariant checks are implicitly disabled:UserWarning")
    config.stash[SESSION] = Session()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # some workers are meant to crash
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < OPEN_FILES:  # the usual 1024: both ends of a crossing are in one process here
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES if hard < 0 else min(OPEN_FILES, hard), hard))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of tests that are long by their number of cases, take the mark from as many as it says, from all over the list."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("long"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for same in cases.values():
        but = same[0].get_closest_marker("long").kwargs.get("but", 0)  # type: ignore[union-attr]
        for number in range(but):
            item = same[number * len(same) // but]
            item.own_markers = [mark for mark in item.own_markers if mark.name != "long"]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let each file run as if it had been loaded alone.

    What is loaded beside it would be paid for by every `gc.collect()`, and by every worker, which looks at the modules
    of the user.
    """
    ours.put_aside()
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    own = session.config.stash[SESSION]
    if own.usage != own.usage_of_all and own.usage.exists():
        with own.usage_of_all.open("a") as file:
            file.write(own.usage.read_text())


def pytest_unconfigure(config: pytest.Config) -> None:
    tempfile.tempdir = None
    shutil.rmtree(config.stash[SESSION].directory, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    records = config.stash[SESSION].usage_records()
    ours = Counter(record["stem"] for record in records if record["engine"] == "antifreeze")
    fallen = Counter(record["reason"] for record in records if record["engine"] != "antifreeze")
    terminalreporter.section("loaders")
    stems = ", ".join(f"{count} {stem}" for stem, count in sorted(ours.items()))
    terminalreporter.write_line(f"on our engine: {ours.total()} ({stems})")
    terminalreporter.write_line(f"on torch's iterator: {fallen.total()}")
    for reason, count in fallen.most_common():
        terminalreporter.write_line(f"  {count} x {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="module", autouse=True)
def is_imported(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of all that has been collected, only the file whose turn it is, and what it uses."""
    ours.bring_back(request.module.__name__)
    yield
    ours.put_aside()


@pytest.fixture(scope="session")
def session(pytestconfig: pytest.Config) -> Session:
    return pytestconfig.stash[SESSION]


def assert_nothing_new(before: Snapshot, mark: Mark, *, has_failed: bool) -> None:
    """Give things a moment to go away, then name what did not."""

    def is_clean() -> bool:
        if not leftovers(before, mark):
            return True
        gc.collect()
        return not leftovers(before, mark)

    if wait_until(is_clean, GRACE_S):
        return
    found = leftovers(before, mark)
    if not found:  # it went away at the last moment
        return
    left = new_processes(before, mark)
    kill(left)
    reap(left)
    if not has_failed:  # the traceback of a failed test keeps its objects alive
        pytest.fail("left behind by this test:\n  " + "\n  ".join(found), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def nothing_outlives_the_session(session: Session) -> Iterator[None]:
    """The clean base process may: it belongs to the trainer, and costs seconds to start."""
    before = take()
    yield
    stop_base_process()
    stop_resource_tracker()
    assert_nothing_new(before, session.mark, has_failed=False)


@pytest.fixture(autouse=True)
def nothing_outlives_the_test(request: pytest.FixtureRequest, session: Session) -> Iterator[None]:
    before = take()
    yield
    assert_nothing_new(before, session.mark, has_failed=request.node.stash.get(FAILED, False))


@pytest.fixture(autouse=True)
def within_its_deadline(request: pytest.FixtureRequest, nothing_outlives_the_test: None) -> Iterator[None]:
    """A hang becomes a failure with a stack, in seconds."""
    marker = request.node.get_closest_marker("deadline")
    seconds = marker.args[0] if marker else DEADLINE_S

    def too_late(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the test did not end within {seconds} s")

    previous = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 10)  # again every 10 s, in case the clean-up hangs too
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What earlier tests have made the process say would not be said again."""
    monkeypatch.setattr(say, "_said", set())
    monkeypatch.setattr(say, "_counts", Counter())


@pytest.fixture(autouse=True)
def no_fallback(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, nothing_outlives_the_test: None
) -> None:
    if request.node.get_closest_marker("fallback"):
        monkeypatch.delenv("ANTIFREEZE", raising=False)
    else:
        monkeypatch.setenv("ANTIFREEZE", "require")


@pytest.fixture
def usage(session: Session) -> Callable[[], list[dict[str, Any]]]:
    """The usage records written since the test began."""
    count = len(session.usage_records())
    return lambda: session.usage_records()[count:]


@pytest.fixture
def start_script(tmp_path: Path, nothing_outlives_the_test: None) -> Iterator[Callable[..., Script]]:
    """Start a user's script in a session of its own: `start_script(text_or_path, *arguments)`."""
    started: list[Script] = []

    def start(
        source: str | Path,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        via: str = "python",
        wrapper: tuple[str, ...] = (),
    ) -> Script:
        path = source if isinstance(source, Path) else tmp_path / f"script_{len(started)}.py"
        if isinstance(source, str):
            path.write_text(selftest_text(source))
        started.append(Script(path, arguments, environment=env or {}, via=via, wrapper=wrapper))
        return started[-1]

    yield start
    for script in started:
        script.end()


@pytest.fixture
def run_script(start_script: Callable[..., Script]) -> Callable[..., Ended]:
    """Run a user's script to its end; no process of it may be left."""

    def run(source: str | Path, *arguments: str, **options: Any) -> Ended:
        script = start_script(source, *arguments, **options)
        ended = script.wait_exit(within_s=SCRIPT_DEADLINE_S)
        script.assert_gone()
        return ended

    return run


@pytest.fixture
def not_for_torch() -> None:
    """torch's own loader does not keep this promise, so the self-test of the suite skips it."""
    if SELFTEST:
        pytest.skip("not a promise of torch's loader")
