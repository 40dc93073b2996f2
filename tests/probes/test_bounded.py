"""Programs that run to their end or to a deadline."""

import contextlib
import os
import signal
import sys
from pathlib import Path

from antifreeze.probes.bounded import ProgramResult, run_bounded
from leftovers import wait_until


def run(program: str, *, timeout_s: float = 20.0) -> ProgramResult:
    return run_bounded([sys.executable, "-c", program], timeout_s=timeout_s, environ=os.environ)


def test_a_program_that_ends_gives_its_status_and_its_words() -> None:
    outcome = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (outcome.exit_status, outcome.stdout, outcome.stderr) == (3, "out\n", "err\n")


def test_a_program_that_hangs_is_stopped_with_all_its_processes(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    outcome = run(
        f"import subprocess, sys; print('started', flush=True); subprocess.run([sys.executable, '-c', {child!r}])",
        timeout_s=1.5,
    )
    assert outcome.exit_status is None
    assert outcome.stdout == "started\n"
    pid = pid_file.read_text()
    assert wait_until(lambda: not Path("/proc", pid).exists(), 2)


def test_a_descendant_that_keeps_the_output_open_does_not_keep_us() -> None:
    outcome = run("import subprocess; print(subprocess.Popen(['sleep', '600']).pid)")
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(outcome.stdout), signal.SIGKILL)
    assert outcome.exit_status == 0


def test_the_last_words_name_the_error() -> None:
    assert run("1 / 0").last_words == "ZeroDivisionError: division by zero"
    assert run("raise ValueError('what\\n  where  here')").last_words == "ValueError: what"
    assert run("import sys; sys.exit(4)").last_words == "exit status 4, without a word"
