"""What a worker's own children make of signals."""

import subprocess
import sys

EARLY = """
import os, signal, sys
from antifreeze.engine.worker.birth import set_worker_signals

os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
set_worker_signals()
child = os.fork()
if not child:
    os._exit(3)
_, status = os.waitpid(child, 0)
sys.exit(0 if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM else 1)
"""


def test_a_signal_that_comes_while_a_child_is_being_forked_ends_it() -> None:
    assert subprocess.run([sys.executable, "-c", EARLY], timeout=60, check=False).returncode == 0
