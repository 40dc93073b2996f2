"""The threads of this process, those of native libraries included: what they are called, and where they wait."""

from __future__ import annotations

import bisect

from antifreeze.machine.mappings import mapped_files
from antifreeze.machine.reading import lines, listing


def thread_names() -> list[str]:
    """What the kernel calls the threads of this process."""
    return [name for task in listing("/proc/self/task") for name in lines(f"/proc/self/task/{task}/comm")]


def files_waited_in() -> list[str]:
    """For each thread that waits in the kernel, the file whose code has called it: a program, or a library.

    A library that waits by the means of another (of the C library, mostly) is not seen.
    """
    mapped = mapped_files()
    found = []
    for task in listing("/proc/self/task"):
        call = " ".join(lines(f"/proc/self/task/{task}/syscall")).split()  # the last of it is where it will go on
        address = int(call[-1], 16) if len(call) > 2 else 0
        place = bisect.bisect_right(mapped, address, key=lambda each: each.start) - 1
        if place >= 0 and address < mapped[place].end:
            found.append(mapped[place].path)
    return found
