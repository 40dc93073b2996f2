"""What stems, workers and a worker's own children make of signals."""

import subprocess
import sys

EARLY = """
import os, signal, sys
from antifreeze.engine.worker.signals import set_worker_signals

os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
set_worker_signals()
child = os.fork()
if not child:
    os._exit(3)
_, status = os.waitpid(child, 0)
sys.exit(0 if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM else 1)
"""


def test_a_signal_that_comes_while_a_child_is_being_forked_ends_it() -> None:
    assert subprocess.run([sys.executable, "-c", EARLY], timeout=150, check=False).returncode == 0


HEARD = """
import faulthandler, os, signal, sys, tempfile
from antifreeze.engine.worker.signals import quieten_signals, set_worker_signals

heard = []
for name in ("USR1", "USR2", "CONT", "XCPU", "TERM", "WINCH", "ALRM", "PROF"):
    if name != "USR2":
        signal.signal(signal.Signals[f"SIG{name}"], lambda number, _: heard.append(signal.Signals(number).name[3:]))
traces = tempfile.TemporaryFile()
faulthandler.register(signal.SIGURG, file=traces)
trainers = "USR1 CONT XCPU TERM WINCH ALRM PROF"

def hear():
    del heard[:]
    for name in ("USR1", "USR2", "CONT", "XCPU", "TERM", "WINCH", "ALRM", "PROF", "URG"):
        os.kill(os.getpid(), signal.Signals[f"SIG{name}"])
    return " ".join(heard)

quieten_signals()
quieten_signals()  # as in a clean stem, which is forked from a base
in_the_stem = hear()
set_worker_signals()
in_a_worker = hear()
print(repr(in_the_stem), repr(in_a_worker), os.fstat(traces.fileno()).st_size > 0)
"""


def test_the_handlers_of_the_trainer_run_nowhere_else_but_those_of_timers_run_in_workers() -> None:
    ended = subprocess.run([sys.executable, "-c", HEARD], timeout=150, check=False, capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == ("'' 'ALRM PROF' True\n", 0), ended
