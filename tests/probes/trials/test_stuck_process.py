"""Stacks as py-spy and faulthandler tell them."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.processes.classify_stack import own_frames
from antifreeze.probes.trials.record_files import STACK_SIGNAL
from antifreeze.probes.trials.stuck_process import current_stack, library_of, main_stack, signalled_stack

PROGRAM = f"""
import faulthandler, sys, time
file = open(sys.argv[1], "wb", buffering=0)
faulthandler.register({int(STACK_SIGNAL)}, file, chain=False)
def waits():
    print("ready", flush=True)
    time.sleep(600)
def _worker_loop():
    waits()
def trains():
    _worker_loop()
trains()
"""
HERE = Path(__file__).parent
SITE = sysconfig.get_path("purelib")
CRASH = f"""Fatal Python error: Segmentation fault

Thread 0x00007f99 (most recent call first):
  File "/lib/threading.py", line 320 in wait

Current thread 0x00007f98 (most recent call first):
  File "{SITE}/ctypes/__init__.py", line 519 in string_at
  File "{__file__}", line 24 in decode
  File "{SITE}/fetch.py", line 54 in fetch
  File "{SITE}/torch/utils/data/_utils/worker.py", line 300 in _worker_loop
  File "{__file__}", line 90 in <module>

Extension modules: numpy (total: 1)
"""


def test_the_crashed_thread_is_read_from_what_faulthandler_wrote() -> None:
    stack = current_stack(CRASH)
    assert [(frame.function, frame.line) for frame in own_frames(stack)][:2] == [("string_at", 519), ("decode", 24)]
    assert own_frames(stack)[-1].function == "_worker_loop"
    assert str(PlaceMaker(base=str(HERE), cwd="/").of_frames(own_frames(stack))[1]) == f"{Path(__file__).name}:24"


def test_what_a_forked_worker_has_from_its_trainer_is_not_its_own() -> None:
    waiting = CRASH.replace(f'"{__file__}", line 24 in decode', f'"{SITE}/queues.py", line 24 in get')
    assert PlaceMaker(base=str(HERE), cwd="/").of_frames(own_frames(current_stack(waiting)))[1] is None


def test_a_process_is_seen_from_outside_and_can_tell_by_itself(tmp_path: Path) -> None:
    script, written = tmp_path / "waits.py", tmp_path / "stacks"
    script.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, str(script), str(written)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            told = signalled_stack(process.pid, written)
            seen = main_stack(process.pid)
        finally:
            process.kill()
    assert [frame.function for frame in told] == ["waits", "_worker_loop", "trains", "<module>"]
    assert not seen or [frame.function for frame in seen] == [frame.function for frame in told]
    assert library_of(told) == ""


def test_who_does_not_expect_the_signal_is_not_sent_it(tmp_path: Path) -> None:
    assert signalled_stack(os.getpid(), tmp_path / "nothing") == ()


def test_the_library_of_a_stack_is_that_of_its_innermost_frame() -> None:
    inside = CRASH.replace(f"{SITE}/ctypes/__init__.py", f"{SITE}/tokenizers/core.py")
    assert library_of(current_stack(inside)) == "tokenizers"
