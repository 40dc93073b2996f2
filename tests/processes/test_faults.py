"""The contract: what every fault does to the user's loop, once and every time. `docs/faults.md` is the same table.

Real processes, real signals. All data is checked: every sample once, in order, unless a policy gives one up.
"""

import contextlib
import ctypes
import dataclasses
import gc
import os
import re
import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from antifreeze import machine
from antifreeze.engine import epoch
from antifreeze.engine.arena.board import Step
from antifreeze.engine.backends import clean
from antifreeze.engine.pool import ending
from antifreeze.engine.supervise import watchdog
from antifreeze.errors import SampleFailed, WorkerCrashed, WorkerFrozen, WorkerKilled, WorkerLost
from antifreeze.observe import say
from antifreeze.observe.accounts import account_of
from antifreeze.observe.ledger import Kind
from antifreeze.policy import Retry
from drop_in.harness import Way, our_way
from leftovers import incarnation, is_running, wait_until
from processes import faulty
from processes.datasets import as_is
from processes.faulty import BAD, BAD_BATCH, BATCH, LENGTH, Fault
from user_scripts import Script

pytestmark = pytest.mark.usefixtures("not_for_torch")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
WHOLE = [[k, k + 1] for k in range(0, LENGTH, BATCH)]
WITHOUT_BATCH = [batch for batch in WHOLE if BAD not in batch]
WITHOUT_SAMPLE = [[index for index in batch if index != BAD] for batch in WHOLE]
# The trainer looks at its workers this often, so that nobody waits for a stall longer than need be.
LOOK_S = 0.2
PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000
BOTH = ("grown", "clean")
GROWN = ("grown",)
ATTENTIVE: Mapping[str, Any] = {"stall_after": 0.5}
HASTY: Mapping[str, Any] = {"stall_after": 0.5, "sample_timeout": 1.2}

Scene = Callable[[Fault], dict[str, Any]]
"""The arguments of a loader in which this fault strikes."""
During = Callable[[Any], None]
"""What happens to an iterator after its third batch."""


# --- what is expected


@dataclass(frozen=True)
class Continues:
    """Every batch comes, in order; what deviated is in the ledger."""

    ledger: Mapping[Kind, int] = field(default_factory=dict)
    first: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the first record of the kind that is named first."""
    stack: str = ""
    """What its stack tells."""
    says: str = ""
    """A pattern that is found in what is printed; empty: nothing is printed."""
    data: Any = field(default_factory=lambda: WHOLE)


@dataclass(frozen=True)
class Raises:
    """The loop ends with this error; all batches before it were right."""

    error: type[Exception]
    text: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ledger: Mapping[Kind, int] | None = None


@dataclass(frozen=True)
class RaisesAndGoesOn:
    """One batch is this error, as with torch; all others come."""

    error: type[Exception]
    text: tuple[str, ...] = ()
    note: str = rf"worker 0 \(pid \d+\), batch {BAD_BATCH}, sample {BAD}"
    exact: bool = True
    data: Any = field(default_factory=lambda: WITHOUT_BATCH)
    times: int = 1
    ledger: Mapping[Kind, int] | None = None


Outcome = Continues | Raises | RaisesAndGoesOn


@dataclass(frozen=True)
class Case:
    """A cell of the table."""

    fault: str
    often: Literal["once", "every time"]
    act: Callable[[], object]
    outcome: Outcome
    scene: Scene
    options: Mapping[str, Any] = field(default_factory=dict)
    during: During | None = None
    stems: tuple[str, ...] = BOTH
    epochs: int = 1
    not_yet: str = ""
    """Why this does not hold yet."""

    def __str__(self) -> str:
        return f"{self.fault} {self.often}"


# --- scenes


def at_sample(fault: Fault) -> dict[str, Any]:
    return {"dataset": faulty.AtSample(fault)}


def in_bulk(fault: Fault) -> dict[str, Any]:
    return {"dataset": faulty.InBulk(fault)}


def swallowed(fault: Fault) -> dict[str, Any]:
    return {"dataset": faulty.Swallowing(fault)}


def in_collate(fault: Fault) -> dict[str, Any]:
    return {"dataset": faulty.Numbers(LENGTH), "collate_fn": faulty.InCollate(fault)}


def in_init(fault: Fault) -> dict[str, Any]:
    return {"dataset": faulty.Numbers(LENGTH), "worker_init_fn": faulty.InInit(fault)}


def in_sampler(fault: Fault) -> dict[str, Any]:
    return {"dataset": faulty.Numbers(LENGTH), "sampler": faulty.InSampler(fault)}


def while_written(fault: Fault) -> dict[str, Any]:
    return {"dataset": faulty.WhileWritten(fault), "collate_fn": as_is}


def before_sending(fault: Fault) -> dict[str, Any]:
    return {"dataset": faulty.Numbers(LENGTH), "worker_init_fn": faulty.AroundSending(fault, after=False)}


def after_sending(fault: Fault) -> dict[str, Any]:
    return {"dataset": faulty.Numbers(LENGTH), "worker_init_fn": faulty.AroundSending(fault, after=True)}


def nowhere(fault: Fault) -> dict[str, Any]:
    return {"dataset": faulty.Numbers(LENGTH)}


def nothing() -> None:
    """The fault comes from outside."""


# --- what is done from outside


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def kill_an_idle_worker(batches: Any) -> None:
    worker = batches._workers[0]
    last = batches._epoch._tickets._orders.history.of(worker.number)[-1].number
    assert wait_until(lambda: worker.board.read_pulse()[:2] == (Step.IDLE, last), 5)
    kill(worker.pid)


def kill_all_workers(batches: Any) -> None:
    for worker in list(batches._workers):
        kill(worker.pid)


def kill_the_stem(batches: Any) -> None:
    kill(batches._epoch._pool.stem.pid)


def kill_the_stem_and_its_workers(batches: Any) -> None:
    kill_the_stem(batches)
    kill_all_workers(batches)


def kill_the_stem_and_later_a_worker(batches: Any) -> None:
    stem = incarnation(batches._epoch._pool.stem.pid)
    kill_the_stem(batches)
    assert stem is not None and wait_until(lambda: not is_running(stem), 5)
    kill(batches._workers[0].pid)


def kill_the_base_and_all(batches: Any) -> None:
    kill(clean.base_pid())
    kill_the_stem_and_its_workers(batches)


def send_to_one(number: int) -> During:
    def send(batches: Any) -> None:
        os.kill(batches._workers[0].pid, number)

    return send


def trace_a_worker(batches: Any) -> None:
    """As a debugger does: it stops the worker, and lets it go after several times what makes a stall."""
    pid, answered, refused = batches._workers[0].pid, threading.Event(), []

    def trace() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(PTRACE_ATTACH, pid, None, None):
            refused.append(os.strerror(ctypes.get_errno()))
            answered.set()
            return
        os.waitpid(pid, WALL)
        answered.set()
        time.sleep(10 * LOOK_S)
        libc.ptrace(PTRACE_DETACH, pid, None, None)

    threading.Thread(target=trace, name="debugger").start()
    assert answered.wait(5)
    if refused:
        pytest.skip(f"nobody may trace here: {refused}")


def fork_the_trainer(batches: Any) -> None:
    """The child asks for a batch, too, and must be told that it is not its to have."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            next(batches)
        except RuntimeError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# --- the table


REPLACED = {Kind.WORKER_REPLACED: 1}
AT_BAD = {"worker": 0, "batch": BAD_BATCH, "sample": str(BAD)}
HEDGED = {Kind.STALL: 1, Kind.HEDGE_STARTED: 1, Kind.HEDGE_WON: 1}


def deaths(
    name: str, act: Callable[[], object], error: type[Exception], *, leaves_stack: bool = False, **how: Any
) -> Iterator[Case]:
    """A worker that ends at a sample: it is replaced; the sample is held responsible when it ends a second one."""
    stack = act.__name__ if leaves_stack else ""
    says = rf"antifreeze: .*batch {BAD_BATCH}, sample {BAD}"
    once = Continues(REPLACED, first={**AT_BAD, **how}, stack=stack, says=says)
    text = (rf"worker 0, batch {BAD_BATCH}, sample {BAD}", "2 workers have ended there", stack)
    attributes = {"worker": 0, "batch": BAD_BATCH, "exitcode": how["exitcode"]}
    again = Raises(error, text, attributes, ledger={Kind.WORKER_REPLACED: 1, Kind.ERROR_RAISED: 1})
    yield Case(name, "once", act, once, at_sample)
    yield Case(name, "every time", act, again, at_sample)


def stuck(name: str, act: Callable[[], object], *, stack: str = "", **how: Any) -> Case:
    """A worker that is blocked: reported with its stack, and another does the same work."""
    says = rf"(?s)antifreeze: (?=.*sample {BAD} )(?=.*{stack})"
    return Case(name, "once", act, Continues(HEDGED, first=AT_BAD, says=says), at_sample, ATTENTIVE, **how)


def stuck_for_ever(name: str, act: Callable[[], object], *, stack: str = "") -> Case:
    """A sample at which every worker is blocked, or never ends: an error, when its time is up."""
    text = (rf"worker 0, batch {BAD_BATCH}, sample {BAD}", stack)
    frozen = Raises(WorkerFrozen, text, {"worker": 0, "batch": BAD_BATCH})
    return Case(name, "every time", act, frozen, at_sample, HASTY, stems=GROWN)


def exception(
    name: str,
    act: Callable[[], object],
    error: type[Exception],
    *text: str,
    stems: tuple[str, ...] = GROWN,
    not_yet: str = "",
    **how: Any,
) -> Case:
    """An exception of the dataset: raised as itself."""
    torchs = ("in DataLoader worker process 0", r"Original .*Traceback", act.__name__)
    return Case(
        name, "once", act, RaisesAndGoesOn(error, (*torchs, *text), **how), at_sample, stems=stems, not_yet=not_yet
    )


CASES = [
    # Deaths, by what a worker was doing.
    Case(
        "killed-starting",
        "once",
        faulty.be_killed,
        Continues(REPLACED, first={"worker": 0, "signal": "SIGKILL"}, says="while it was starting"),
        in_init,
    ),
    Case(
        "killed-starting",
        "every time",
        faulty.be_killed,
        Raises(WorkerKilled, ("worker 0, while it was starting", "3 workers have ended there"), {"exitcode": -9}),
        in_init,
    ),
    Case(
        "killed-idle",
        "once",
        nothing,
        Continues(REPLACED, first={"worker": 0, "signal": "SIGKILL", "sample": None}, says="between batches"),
        nowhere,
        during=kill_an_idle_worker,
    ),
    *deaths("killed-fetching", faulty.be_killed, WorkerKilled, signal="SIGKILL", exitcode=-9),
    Case(
        "killed-collating",
        "once",
        faulty.be_killed,
        Continues(
            REPLACED,
            first={"worker": 0, "batch": BAD_BATCH, "sample": None},
            says=f"batch {BAD_BATCH}, while it was collated",
        ),
        in_collate,
    ),
    Case(
        "killed-collating",
        "every time",
        faulty.be_killed,
        Raises(WorkerKilled, (f"batch {BAD_BATCH}, while it was collated",), {"batch": BAD_BATCH}),
        in_collate,
    ),
    Case(
        "killed-writing",
        "once",
        faulty.be_killed,
        Continues(REPLACED, first={"worker": 0, "batch": BAD_BATCH}, says=f"batch {BAD_BATCH}, while it was written"),
        while_written,
    ),
    Case(
        "killed-writing",
        "every time",
        faulty.be_killed,
        Raises(WorkerKilled, (f"batch {BAD_BATCH}, while it was written",), {"batch": BAD_BATCH}),
        while_written,
    ),
    Case(
        "killed-sending",
        "once",
        faulty.be_killed,
        Continues(REPLACED, first={"worker": 0, "batch": BAD_BATCH}, says=f"batch {BAD_BATCH}, while it was written"),
        before_sending,
    ),
    Case(
        "killed-after-sending",
        "once",
        faulty.be_killed,
        Continues(REPLACED, first={"worker": 0, "signal": "SIGKILL", "sample": None}, says="SIGKILL"),
        after_sending,
    ),
    Case(
        "killed-all-at-once",
        "once",
        nothing,
        Continues({Kind.WORKER_REPLACED: 2}, first={"signal": "SIGKILL"}, says="SIGKILL"),
        nowhere,
        during=kill_all_workers,
    ),
    # Deaths, by how.
    *deaths("segfault", faulty.segfault, WorkerCrashed, leaves_stack=True, signal="SIGSEGV", exitcode=-11),
    *deaths("abort", faulty.abort, WorkerCrashed, leaves_stack=True, signal="SIGABRT", exitcode=-6),
    *deaths("bus-error", faulty.bus_error, WorkerCrashed, leaves_stack=True, signal="SIGBUS", exitcode=-7),
    *deaths("exit-0", faulty.exit_0, WorkerCrashed, signal=None, exitcode=0),
    *deaths("exit-1", faulty.exit_1, WorkerCrashed, signal=None, exitcode=1),
    *deaths("system-exit", faulty.system_exit, WorkerCrashed, signal=None, exitcode=4),
    *deaths("keyboard-interrupt", faulty.keyboard_interrupt, WorkerCrashed, signal=None, exitcode=1),
    Case(
        "stop-iteration",
        "once",
        faulty.stop_iteration,
        Continues({Kind.SAMPLE_RETRIED: 1}, first=AT_BAD, says=rf"sample {BAD}: .*; StopIteration"),
        at_sample,
    ),
    Case(
        "stop-iteration",
        "every time",
        faulty.stop_iteration,
        RaisesAndGoesOn(SampleFailed, ("StopIteration",)),
        at_sample,
    ),
    # Where workers come from.
    Case("stem-killed", "once", nothing, Continues(), nowhere, during=kill_the_stem),
    Case(
        "stem-killed-then-worker",
        "once",
        nothing,
        Continues(REPLACED, first={"worker": 0}, says="antifreeze: "),
        nowhere,
        during=kill_the_stem_and_later_a_worker,
    ),
    Case(
        "stem-and-workers-killed",
        "once",
        nothing,
        Continues({Kind.WORKER_REPLACED: 2}, says="antifreeze: "),
        nowhere,
        during=kill_the_stem_and_its_workers,
    ),
    Case(
        "base-killed",
        "once",
        nothing,
        Continues({Kind.WORKER_REPLACED: 2}, says="antifreeze: "),
        nowhere,
        during=kill_the_base_and_all,
        stems=("clean",),
    ),
    # Stuck.
    stuck("stuck-sleeping", faulty.sleep, stack="faulty.py:"),
    stuck_for_ever("stuck-sleeping", faulty.sleep, stack="faulty.py:"),
    stuck("stuck-socket", faulty.wait_on_a_socket, stack="faulty.py:"),
    stuck("stuck-pipe", faulty.wait_on_a_pipe, stack="faulty.py:"),
    stuck("stuck-lock", faulty.wait_on_a_lock, stack="faulty.py:", stems=("clean",)),
    stuck("stuck-gil", faulty.hold_the_gil, stack="faulty.py:"),
    stuck("stopped", faulty.be_stopped),
    stuck_for_ever("stopped", faulty.be_stopped),
    Case(
        "endless-loop",
        "every time",
        faulty.loop_for_ever,
        Raises(WorkerFrozen, (rf"worker 0, batch {BAD_BATCH}, sample {BAD}", "faulty.py:"), {"batch": BAD_BATCH}),
        at_sample,
        {**HASTY, "timeout": 4},  # longer than sample_timeout, which is for workers that are blocked
        stems=GROWN,
    ),
    # Only slow.
    Case(
        "slow-sample",
        "every time",
        faulty.compute_for_a_while,
        Continues({Kind.STALL: 1}, first=AT_BAD, says=rf"(?s)sample {BAD}.*it is at work, and is left alone"),
        at_sample,
        ATTENTIVE,
        stems=GROWN,
    ),
    Case("slow-but-blocked", "every time", faulty.sleep_a_little, Continues(), at_sample, stems=GROWN),
    Case("slow-getitems", "every time", faulty.sleep_a_little, Continues(), in_bulk, stems=GROWN),
    Case("traced", "once", nothing, Continues(), nowhere, ATTENTIVE, during=trace_a_worker, stems=GROWN),
    # Samples that no worker survives, given up.
    Case(
        "poison-skip",
        "every time",
        faulty.be_killed,
        Continues(
            {Kind.WORKER_REPLACED: 2, Kind.SAMPLE_QUARANTINED: 1, Kind.SAMPLE_SKIPPED: 2},
            first=AT_BAD,
            says=rf"sample {BAD}: not fetched any more",
            data=WITHOUT_SAMPLE * 2,
        ),
        at_sample,
        {"on_error": "skip"},
        epochs=2,
    ),
    Case(
        "poison-replace",
        "every time",
        faulty.be_killed,
        Continues(
            {Kind.WORKER_REPLACED: 2, Kind.SAMPLE_QUARANTINED: 1, Kind.SAMPLE_REPLACED: 2},
            first=AT_BAD,
            says=rf"sample {BAD}: not fetched any more",
            data=None,
        ),
        at_sample,
        {"on_error": "replace"},
        epochs=2,
    ),
    Case(
        "hanging-skip",
        "every time",
        faulty.sleep,
        Continues(
            {Kind.STALL: 1, Kind.HEDGE_STARTED: 1, Kind.SAMPLE_QUARANTINED: 1, Kind.SAMPLE_SKIPPED: 2},
            first=AT_BAD,
            says=rf"sample {BAD}: not fetched any more",
            data=WITHOUT_SAMPLE * 2,
        ),
        at_sample,
        {**ATTENTIVE, "on_error": "skip"},  # without sample_timeout: else what is known would be waited for
        epochs=2,
    ),
    # Exceptions of every kind.
    exception("exception", faulty.value_error, ValueError, "cannot decode it", stems=BOTH),
    exception("exception-local-class", faulty.local_class, KeyError, "DecodeError", stems=BOTH, exact=False),
    exception("exception-unpicklable", faulty.unpicklable, faulty.Unpicklable, "cannot decode it", stems=BOTH),
    exception("exception-not-rebuilt", faulty.not_to_be_rebuilt, faulty.NotToBeRebuilt, "cannot decode it", stems=BOTH),
    exception(
        "exception-other-arguments",
        faulty.other_arguments,
        faulty.TwoArguments,
        "labels.csv:7 is broken",
    ),
    exception(
        "exception-message-attribute",
        faulty.message_attribute,
        faulty.WithMessage,
        "cannot decode it",
    ),
    exception("exception-huge", faulty.huge_message, ValueError, "x{1000}", "cannot decode it"),
    exception(
        "exception-group",
        faulty.group,
        ExceptionGroup,
        "one of them",
        "another",
    ),
    exception("exception-chained", faulty.chained, ValueError, "FileNotFoundError: labels.csv", "direct cause"),
    Case(
        "exception-recorded",
        "once",
        faulty.value_error,
        RaisesAndGoesOn(ValueError, ledger={Kind.ERROR_RAISED: 1}),
        at_sample,
    ),
    Case(
        "exception-collate",
        "once",
        faulty.value_error,
        RaisesAndGoesOn(
            ValueError,
            ("in DataLoader worker process 0", "cannot decode it"),
            note=rf"worker 0 \(pid \d+\), batch {BAD_BATCH}, samples {BAD - 1}, {BAD}",
        ),
        in_collate,
    ),
    Case(
        "exception-sampler",
        "once",
        faulty.value_error,
        RaisesAndGoesOn(ValueError, ("cannot decode it",), note="", data=WHOLE[:BAD_BATCH]),
        in_sampler,
    ),
    Case(
        "exception-init",
        "every time",
        faulty.value_error,
        RaisesAndGoesOn(
            ValueError,
            ("in DataLoader worker process 0", "cannot decode it"),
            note=r"worker 0 \(pid \d+\), batch 0, samples 0, 1",
            data=WHOLE[1::2],
            times=len(WHOLE[::2]),
        ),
        in_init,
    ),
    Case(
        "none-sample",
        "every time",
        faulty.value_error,
        RaisesAndGoesOn(
            RuntimeError,
            (
                "in DataLoader worker process 0",
                "NoneType",
                r"`ValueError` \(cannot decode it\) at faulty\.py:\d+, caught at faulty\.py:\d+",
            ),
            ledger={Kind.ERROR_RAISED: 1},
        ),
        swallowed,
        stems=GROWN,
    ),
    Case(
        "exception-retry",
        "once",
        faulty.value_error,
        Continues({Kind.SAMPLE_RETRIED: 1}, first={**AT_BAD, "attempt": 1}, says=rf"sample {BAD}: .*; ValueError"),
        at_sample,
        {"on_error": Retry(1, backoff_s=0)},
    ),
    Case(
        "exception-retry",
        "every time",
        faulty.value_error,
        RaisesAndGoesOn(ValueError, ("cannot decode it", "attempt 2 at sample 13, and the last")),
        at_sample,
        {"on_error": Retry(1, backoff_s=0)},
    ),
    Case(
        "exception-skip",
        "every time",
        faulty.value_error,
        Continues({Kind.SAMPLE_SKIPPED: 1}, first=AT_BAD, says=rf"sample {BAD}: .*; ValueError", data=WITHOUT_SAMPLE),
        at_sample,
        {"on_error": "skip"},
    ),
    Case(
        "exception-replace",
        "every time",
        faulty.value_error,
        Continues({Kind.SAMPLE_REPLACED: 1}, first=AT_BAD, says=rf"sample {BAD}: .*; ValueError", data=None),
        at_sample,
        {"on_error": "replace"},
    ),
    # Signals to one worker.
    Case("sigint-to-a-worker", "once", nothing, Continues(), nowhere, during=send_to_one(signal.SIGINT)),
    Case(
        "sigterm-to-a-worker",
        "once",
        nothing,
        Continues(),
        nowhere,
        during=send_to_one(signal.SIGTERM),
    ),
    Case(
        "sighup-to-a-worker",
        "once",
        nothing,
        Continues(),
        nowhere,
        during=send_to_one(signal.SIGHUP),
    ),
    Case("fork-in-the-trainer", "once", nothing, Continues(), nowhere, during=fork_the_trainer),
]


# --- the test of the table


def as_params(cases: "list[Case] | list[Story]") -> Iterator[Any]:
    for case in cases:
        for stem in case.stems:
            marks = [pytest.mark.xfail(strict=True, reason=case.not_yet)] if case.not_yet else []
            yield pytest.param(case, stem, id=f"{case} {stem}", marks=marks)


@pytest.fixture(autouse=True)
def quick_and_quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Workers are looked at often, files go nowhere else, and what others were told is told again."""
    monkeypatch.setattr(epoch, "SLICE_S", LOOK_S)
    # One that a busy machine held up for 30 ms is no measure of slowness.
    monkeypatch.setattr(watchdog, "FAR_LONGER", 5)
    monkeypatch.setattr(ending, "STOP_DEADLINE_S", 0.5)
    monkeypatch.setattr(say, "_counts", Counter())
    monkeypatch.setattr(say, "_said", set())
    monkeypatch.setenv("ANTIFREEZE_DIR", str(tmp_path / "files"))


@pytest.mark.long(but=2)
@pytest.mark.parametrize(("case", "stem"), [*as_params(CASES)])
def test_a_fault_does_what_the_table_says(
    case: Case, stem: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fault = Fault(case.act, tmp_path / "note", case.often == "every time")
    options = {"batch_size": BATCH, **case.scene(fault), **case.options}
    loader = our_way(stem).make(options.pop("dataset"), **options)
    seen, errors = deliver(loader, case)
    ledger, printed = account_of(loader).ledger, capfd.readouterr().err
    assert case.act is nothing or fault.strikes, "the fault hit nothing"
    match case.outcome:
        case Continues() as expected:
            assert errors == []
            assert_data(seen, expected.data)
            assert dict(ledger.counts) == expected.ledger, [*ledger]
            assert_first(ledger, expected)
            assert bool(printed) == bool(expected.says) and re.search(expected.says, printed), printed
        case Raises() as expected:
            (error,) = errors
            assert type(error) is expected.error, repr(error)
            assert_text(str(error), expected.text)
            assert {name: getattr(error, name) for name in expected.attributes} == expected.attributes
            assert seen == WHOLE[: len(seen)]
            assert expected.ledger is None or dict(ledger.counts) == expected.ledger
        case RaisesAndGoesOn() as expected:
            error = errors[0]
            assert len(errors) == expected.times
            assert isinstance(error, expected.error) and (type(error) is expected.error or not expected.exact)
            assert_text(str(error), expected.text)
            notes = "\n".join(getattr(error, "__notes__", []))
            assert re.search(expected.note, notes) if expected.note else not notes, notes
            assert_data(seen, expected.data)
            assert expected.ledger is None or dict(ledger.counts) == expected.ledger


def deliver(loader: Any, case: Case) -> tuple[list[Any], list[Exception]]:
    """All batches and errors, until the end or until a worker is lost for good."""
    seen: list[Any] = []
    errors: list[Exception] = []
    for _ in range(case.epochs):
        batches = iter(loader)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                break
            except Exception as error:
                errors.append(error.with_traceback(None))
                if isinstance(error, WorkerLost):
                    return seen, errors
                continue
            seen.append(batch if isinstance(batch, list) else batch.tolist())
            if len(seen) == 3 and case.during is not None:
                case.during(batches)
    return seen, errors


def assert_data(seen: list[Any], expected: list[Any] | None) -> None:
    if expected is not None:
        assert seen == expected
        return
    others = {seen[number].pop(BAD % BATCH) for number in range(BAD_BATCH, len(seen), len(WHOLE))}
    assert others < set(range(LENGTH)) - {BAD}  # another sample stands in its place
    assert seen == WITHOUT_SAMPLE * (len(seen) // len(WHOLE))


def assert_first(ledger: Any, expected: Continues) -> None:
    if expected.first:
        record = next(record for record in ledger if record.kind is next(iter(expected.ledger)))
        assert {name: getattr(record, name) for name in expected.first} == expected.first
        assert expected.stack in (record.stack or "")
        assert record.pid is not None and abs(record.time_s - time.time()) < 60


def assert_text(text: str, patterns: tuple[str, ...]) -> None:
    assert [pattern for pattern in patterns if not re.search(pattern, text)] == [], text


# --- the trainer, and what is around it


@dataclass(frozen=True)
class Stage:
    """All that a story needs."""

    way: Way
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    start: Callable[..., Script]


@dataclass(frozen=True)
class Story:
    """A row of the table that is not about a sample."""

    fault: str
    tell: Callable[[Stage], None]
    word: str = "continues"
    """What the table says first."""
    stems: tuple[str, ...] = BOTH
    not_yet: str = ""
    often: str = "once"

    def __str__(self) -> str:
        return f"{self.fault} {self.often}"


def lists(batches: Any) -> list[Any]:
    return [batch.tolist() for batch in batches]


def numbers(stage: Stage, **options: Any) -> Any:
    return stage.way.make(faulty.Numbers(LENGTH), batch_size=BATCH, **options)


def assert_all_end(workers: list[Any]) -> None:
    assert wait_until(lambda: not any(worker.is_alive() for worker in workers), 2)


def oom_killed(stage: Stage) -> None:
    """A worker is killed, and the kernel counts one more OOM kill."""
    counts = iter((4, 5))
    stage.monkeypatch.setattr(machine, "oom_kills", lambda: next(counts, 5))
    loader = numbers(stage)
    batches = iter(loader)
    seen = [next(batches).tolist()]
    kill(batches._workers[0].pid)
    assert seen + lists(batches) == WHOLE
    ledger = account_of(loader).ledger
    assert ledger.counts == {Kind.WORKER_REPLACED: 1, Kind.WORKER_GIVEN_UP: 1}
    assert "killed by the kernel for lack of memory" in ledger[0].what


def inherited_lock(stage: Stage) -> None:
    """A thread of the trainer holds a lock when workers are forked."""
    loader = stage.way.make(faulty.BehindTheInheritedLock(LENGTH), batch_size=BATCH, **ATTENTIVE)
    with faulty.INHERITED:
        batches = iter(loader)
    assert lists(batches) == WHOLE
    counts = account_of(loader).ledger.counts
    assert (counts[Kind.HEDGE_STUCK], counts[Kind.IN_PROCESS], counts[Kind.HEDGE_WON]) == (1, 1, 0)


def outage(stage: Stage) -> None:
    """A file server is away: every worker is blocked at once, for several times what makes a stall."""
    server = stage.folder / "server"
    os.mkfifo(server)
    look = machine.process_facts

    def as_of_a_file(pid: int) -> machine.ProcessFacts | None:
        """The kernel says `disk` of who waits for a file server, and `pipe` here."""
        facts = look(pid)
        return facts and dataclasses.replace(facts, waits_in="disk" if facts.waits_in == "pipe" else facts.waits_in)

    stage.monkeypatch.setattr(machine, "process_facts", as_of_a_file)
    loader = stage.way.make(faulty.OnAServer(server), batch_size=BATCH, **ATTENTIVE)
    batches, ledger = iter(loader), account_of(loader).ledger
    pids = [worker.pid for worker in batches._workers]
    over = threading.Event()

    def come_back() -> None:
        assert wait_until(lambda: ledger.counts[Kind.STALL] >= len(pids) or over.is_set(), 15)
        over.wait(10 * LOOK_S)
        writer = os.open(server, os.O_RDWR)  # does not wait for readers
        over.wait(20)
        os.close(writer)

    thread = threading.Thread(target=come_back, name="server")
    thread.start()
    try:
        assert lists(batches) == WHOLE
        assert [worker.pid for worker in batches._workers] == pids
        # Nobody was replaced or hedged. How many stalls there are is the machine's affair: here, 0.2 s make one.
        assert set(ledger.counts) == {Kind.STALL}
    finally:
        over.set()
        thread.join(20)


def exception_in_the_loop(stage: Stage) -> None:
    loader, workers = numbers(stage), []

    def train() -> None:
        batches = iter(loader)
        workers.extend(batches._workers)
        for _ in batches:
            raise ZeroDivisionError("loss")

    with contextlib.suppress(ZeroDivisionError):
        train()
    gc.collect()
    assert_all_end(workers)
    assert lists(loader) == WHOLE


def break_in_the_loop(stage: Stage) -> None:
    loader = numbers(stage)
    for _ in loader:
        break
    assert lists(loader) == WHOLE


def abandoned_iterator(stage: Stage) -> None:
    batches = iter(numbers(stage))
    next(batches)
    workers = list(batches._workers)
    del batches
    assert_all_end(workers)


def two_iterators(stage: Stage) -> None:
    loader = numbers(stage)
    assert [(one.tolist(), other.tolist()) for one, other in zip(loader, loader, strict=True)] == [
        (batch, batch) for batch in WHOLE
    ]


def another_thread(stage: Stage) -> None:
    loader, seen = numbers(stage), []

    def train() -> None:
        batches = iter(loader)
        seen.append(next(batches).tolist())
        kill(batches._workers[0].pid)
        seen.extend(lists(batches))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(20)
    assert seen == WHOLE
    assert account_of(loader).ledger.counts == REPLACED


def loader_inside(stage: Stage) -> None:
    assert lists(stage.way.make(faulty.LoaderInside(), batch_size=2)) == [[1, 3], [6, 10]]


def pool_inside(stage: Stage) -> None:
    assert lists(stage.way.make(faulty.PoolInside(), batch_size=2)) == [[0, 1], [2, 3]]


SCRIPT = """
import signal, sys, time
from antifreeze import DataLoader
from antifreeze.observe.accounts import account_of
from torch.utils.data import Dataset


class Samples(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        time.sleep(1000 if "busy" in sys.argv and index > 7 else 0.05)
        return index


if __name__ == "__main__":
    asked = []
    if "handler" in sys.argv:
        signal.signal(signal.SIGTERM, lambda *_: asked.append("SIGTERM"))
        signal.signal(signal.SIGHUP, lambda *_: asked.append("SIGHUP"))
    loader = DataLoader(Samples(), batch_size=2, num_workers=2, multiprocessing_context="fork", stall_after=1)
    batches, seen = iter(loader), []
    for batch in batches:
        seen += batch.tolist()
        if len(seen) == 4:
            print("ready", flush=True)
            if "leave" in sys.argv:
                sys.exit(7)
    print(seen == list(range(40)), sorted(set(asked)), *account_of(loader).ledger.counts, flush=True)
"""


def running(stage: Stage, *words: str) -> Script:
    script = stage.start(SCRIPT, *words)
    script.wait_line("ready", within_s=60)
    return script


def send_to_all(script: Script, number: int) -> None:
    for process in script.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def ctrl_c(stage: Stage) -> None:
    script = running(stage, "busy")
    os.killpg(script.process.pid, signal.SIGINT)
    ended = script.wait_exit(within_s=60)
    assert ended.returncode == -signal.SIGINT and ended.stderr.count("Traceback") == 1, ended
    script.assert_gone()


def signal_to_the_whole_job(number: int) -> Callable[[Stage], None]:
    """As a scheduler ends a job: every process gets it, and the trainer has a handler of its own."""

    def tell(stage: Stage) -> None:
        script = running(stage, "handler")
        send_to_all(script, number)
        ended = script.wait_exit(within_s=60).check()
        assert ended.stdout.splitlines()[-1] == f"True ['{signal.Signals(number).name}']", ended

    return tell


def trainer_killed(stage: Stage) -> None:
    script = running(stage, "busy")
    script.process.kill()
    script.wait_exit(within_s=60)
    script.assert_gone()


def exit_while_busy(stage: Stage) -> None:
    script = running(stage, "busy", "leave")
    ended = script.wait_exit(within_s=60)
    assert (ended.returncode, ended.stderr) == (7, ""), ended
    script.assert_gone()


def paused(stage: Stage) -> None:
    """As a suspended machine, a paused container or Ctrl-Z: everything stands still, longer than a stall takes."""
    script = running(stage)
    send_to_all(script, signal.SIGSTOP)
    time.sleep(3)
    send_to_all(script, signal.SIGCONT)
    ended = script.wait_exit(within_s=60).check()
    assert (ended.stdout.splitlines()[-1], ended.stderr) == ("True []", ""), ended


def descriptors_exhausted(stage: Stage) -> None:
    """The trainer has no descriptor left when a worker has to be replaced."""
    loader = numbers(stage)
    batches = iter(loader)
    seen = [next(batches).tolist()]
    pids = [
        worker.pid for worker in batches._workers
    ]  # news of a birth brings a descriptor: all are to be heard before
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        kill(pids[0])
        seen += lists(batches)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)
    assert seen == WHOLE
    assert account_of(loader).ledger.counts == REPLACED


def ledger_not_writable(stage: Stage) -> None:
    loader = numbers(stage, ledger_file=stage.folder / "no such folder" / "ledger.jsonl")
    batches = iter(loader)
    seen = [next(batches).tolist()]
    kill(batches._workers[0].pid)
    assert seen + lists(batches) == WHOLE
    assert account_of(loader).ledger.counts == {Kind.LEDGER_TROUBLE: 1, **REPLACED}


STORIES = [
    Story("oom-killed", oom_killed, stems=GROWN),
    Story("inherited-lock", inherited_lock, stems=GROWN),
    Story("outage", outage),
    Story("exception-in-the-loop", exception_in_the_loop, "ends"),
    Story("break", break_in_the_loop, "ends"),
    Story("abandoned-iterator", abandoned_iterator, "ends"),
    Story("two-iterators", two_iterators),
    Story("another-thread", another_thread),
    Story("loader-inside-a-worker", loader_inside),
    Story("pool-inside-a-worker", pool_inside),
    Story("ctrl-c", ctrl_c, "raises `KeyboardInterrupt`", stems=GROWN),
    Story("sigterm-to-the-whole-job", signal_to_the_whole_job(signal.SIGTERM), stems=GROWN),
    Story("sighup-to-the-whole-job", signal_to_the_whole_job(signal.SIGHUP), stems=GROWN),
    Story("trainer-killed", trainer_killed, "ends", stems=GROWN),
    Story("descriptors-exhausted", descriptors_exhausted),
    Story("ledger-not-writable", ledger_not_writable, stems=GROWN),
    Story("exit-while-busy", exit_while_busy, "ends", stems=GROWN),
    Story("paused", paused, stems=GROWN),
]


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("story", "stem"), [*as_params(STORIES)])
def test_the_trainer_fares_as_the_table_says(
    story: Story,
    stem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start_script: Callable[..., Script],
) -> None:
    story.tell(Stage(our_way(stem), tmp_path, monkeypatch, start_script))


# --- the page


ROW = re.compile(
    r"^\| [^|]* \| `(?P<fault>[a-z0-9-]+)` \| (?P<once>[^|]*) \| (?P<every>[^|]*) \| (?:[^|]* )?\|$", re.MULTILINE
)
SAME = ("–", "the same")


def test_the_page_says_of_every_fault_what_the_tests_say() -> None:
    rows = {row["fault"]: row for row in ROW.finditer(PAGE.read_text())}
    known: dict[str, dict[str, Case | Story]] = {}
    for case in (*CASES, *STORIES):
        known.setdefault(case.fault, {})[case.often] = case
    assert sorted(rows) == sorted(known)
    wrong = []
    for fault, cases in known.items():
        for often, cell in (("once", rows[fault]["once"]), ("every time", rows[fault]["every"])):
            case = cases.get(often)
            if not (cell in SAME if case is None else cell.startswith(word_of(case))):
                wrong.append((fault, often, cell, case and word_of(case)))
        if any(case.not_yet for case in cases.values()) != ("not yet" in rows[fault][0]):
            wrong.append((fault, "not yet", rows[fault][0], None))
    assert wrong == []


def word_of(case: Case | Story) -> str:
    """How the cell of the table begins."""
    if isinstance(case, Story):
        return case.word
    if isinstance(case.outcome, Continues):
        return "continues"
    return "raises its own" if case.fault.startswith("exception") else f"raises `{case.outcome.error.__name__}`"
