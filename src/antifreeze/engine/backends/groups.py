"""Process groups of workers: each leads one, so that all that it started can be killed with it, and may lead a session.

The kernel refuses `setsid()` to the leader of a group, which a worker of torch's is not. So in a worker `os.setsid` steps
out of its group first. A session has a group of the same number again: what is started afterwards is killed as before.
"""

from __future__ import annotations

import contextlib
import os


def let_worker_lead_a_session(stems_group: int) -> None:
    """In a worker, which leads a group: let `os.setsid()` work as it would in a worker of torch's."""
    setsid = os.setsid
    worker = os.getpid()

    def setsid_of_worker() -> None:
        if os.getpid() == worker == os.getpgrp() and os.getsid(0) != worker:
            # If it has started processes, the group is still there, and the kernel says no: as with any leader.
            with contextlib.suppress(OSError):  # the stem is gone, and its group with it
                os.setpgid(0, stems_group)
            try:
                setsid()
            except OSError:
                os.setpgid(0, worker)
                raise
        else:
            setsid()

    os.setsid = setsid_of_worker
