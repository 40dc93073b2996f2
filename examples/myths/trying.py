"""Runs a part of a myth's script in a process of its own, for some of them hang: that is what they are to show."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping

# Far longer than each of these takes when it does not hang.
LIMIT_S = 30.0
# A private /dev/shm of that size, where the kernel lets us have one.
SMALL_SHM = 'mount -t tmpfs -o size={megabytes}m tmpfs /dev/shm && exec "$0" "$@"'


def outcome(
    script: str, *words: str, shm_mb: int | None = None, limit_s: float = LIMIT_S, variables: Mapping[str, str] = {}
) -> str:
    """The last line of `python script words…`, its error if it has one, or that it hangs; none of its processes is left."""
    command = [sys.executable, script, *words]
    if shm_mb is not None:
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", SMALL_SHM.format(megabytes=shm_mb), *command]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, **variables},
    )
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"hangs (stopped after {limit_s:.0f} s)"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if process.returncode:
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        # What torch's own handler says in a worker that dies of a signal tells more than the error in the trainer.
        lines = [line for line in lines if line.startswith("ERROR: Unexpected")] or errors or lines
    return lines[-1] if lines else f"exit status {process.returncode}"
