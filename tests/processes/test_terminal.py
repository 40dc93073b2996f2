"""A program at a terminal: what its workers start may use it, and debuggers in workers read what is typed."""

import signal
import sys

import pytest

from drop_in.harness import Way
from leftovers import describe, is_running, wait_until
from user_scripts import RunScript, StartScript

pytestmark = pytest.mark.usefixtures("not_for_torch")

# Runs a program at a terminal of its own, as its foreground job; types each text as soon as what belongs to it is shown.
AT_A_TERMINAL = """
import os, pty, sys
shown, typed, command = sys.argv[1].encode(), sys.argv[2].encode().decode("unicode_escape").encode(), sys.argv[3:]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(command[0], command)
seen = b""
while True:
    try:
        read = os.read(terminal, 4096)
    except OSError:
        break
    seen += read
    os.write(1, read)
    if shown and shown in seen:
        os.write(terminal, typed)
        shown = b""
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
# What ffmpeg does when it starts: it sets the modes of the terminal, for it may be asked to stop by a key.
SETS_MODES = """
import subprocess, sys
from antifreeze import DataLoader

MODES = "import termios; termios.tcsetattr(0, termios.TCSANOW, termios.tcgetattr(0)); print('set')"

class Films:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return subprocess.run([sys.executable, "-S", "-c", MODES], stdout=subprocess.PIPE, text=True).stdout.strip()

if __name__ == "__main__":
    print(list(DataLoader(Films(), num_workers=2, multiprocessing_context=sys.argv[1])))
"""
DEBUGGED = """
import pdb, sys, time
from antifreeze import DataLoader

class ForkedPdb(pdb.Pdb):
    def interaction(self, *arguments):
        before = sys.stdin
        sys.stdin = open("/dev/stdin")
        try:
            super().interaction(*arguments)
        finally:
            sys.stdin = before

class Numbers:
    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 8:
            ForkedPdb().set_trace()
        return index

if __name__ == "__main__":
    loader = DataLoader(Numbers(), num_workers=1, multiprocessing_context=sys.argv[1], stall_after=0.5)
    print([int(batch) for batch in loader])
"""
STARTS_OTHERS = """
import os, subprocess, sys, time
from antifreeze import DataLoader

class Numbers:
    def __len__(self):
        return 300

    def __getitem__(self, index):
        if index < 2:
            subprocess.Popen(["sleep", "1000"])
            subprocess.run("sleep 1000 & true", shell=True)  # its parent ends at once
        time.sleep(0.01)
        return index

if __name__ == "__main__":
    batches = iter(DataLoader(Numbers(), num_workers=2, multiprocessing_context=sys.argv[1]))
    for batch in batches:
        if batch == 3:
            print("begun", batches._workers[0].pid, flush=True)
        ENDING
    print("over")
"""


def at_a_terminal(shown: str = "", typed: str = "") -> tuple[str, ...]:
    return sys.executable, "-c", AT_A_TERMINAL, shown, typed


def test_a_program_that_workers_start_may_set_the_modes_of_the_terminal(way: Way, run_script: RunScript) -> None:
    ended = run_script(SETS_MODES, way.context or "fork", wrapper=at_a_terminal()).check()
    assert ended.stdout.strip() == "[['set'], ['set'], ['set'], ['set']]"


def test_a_debugger_in_a_worker_reads_what_is_typed_and_is_given_all_the_time(
    way: Way, start_script: StartScript
) -> None:
    slow_typist = (
        sys.executable,
        "-c",
        AT_A_TERMINAL.replace("os.write(terminal", "import time; time.sleep(4); os.write(terminal"),
    )
    script = start_script(DEBUGGED, way.context or "fork", wrapper=(*slow_typist, "(Pdb)", r"p index * 77\nc\n"))
    ended = script.wait_exit(within_s=60).check()
    assert "616" in ended.stdout and str([*range(12)]) in ended.stdout, f"{ended}"
    assert "no progress" not in ended.stdout and ended.stdout.count("set_trace") <= 1, f"{ended}"


@pytest.mark.long(but=3)
@pytest.mark.parametrize("ending", ["", "batch == 9 and sys.exit()", "batch == 9 and os.kill(os.getpid(), 9)"])
def test_what_workers_started_ends_with_them(way: Way, start_script: StartScript, ending: str) -> None:
    script = start_script(STARTS_OTHERS.replace("ENDING", ending), way.context or "fork", wrapper=at_a_terminal())
    script.wait_exit(within_s=60)
    script.assert_gone()


def test_ctrl_c_ends_the_program_with_one_traceback(way: Way, start_script: StartScript) -> None:
    script = start_script(
        STARTS_OTHERS.replace("ENDING", ""), way.context or "fork", wrapper=at_a_terminal("begun", r"\x03")
    )
    ended = script.wait_exit(within_s=60)
    assert ended.returncode == -signal.SIGINT, f"{ended}"
    assert ended.stdout.count("Traceback") == 1, f"{ended}"
    script.assert_gone()


def test_what_a_lost_worker_started_ends_and_what_another_one_started_lives(
    way: Way, start_script: StartScript
) -> None:
    kills = "batch == 100 and os.kill(batches._workers[0].pid, 9); batch == 280 and time.sleep(1000)"
    script = start_script(STARTS_OTHERS.replace("ENDING", kills), way.context or "fork", wrapper=at_a_terminal())
    lost = int(script.wait_line(r"begun (\d+)", within_s=60)[1])
    started = [who for who in script.alive() if "sleep" in describe(who.pid).split(": ")[1]]
    of_the_lost = [who for who in started if f"parent {lost})" in describe(who.pid)]
    assert (len(started), len(of_the_lost)) == (4, 2), [describe(who.pid) for who in started]
    assert wait_until(lambda: not any(map(is_running, of_the_lost)), 15)
    assert all(is_running(who) for who in started if who not in of_the_lost)
    script.end()
