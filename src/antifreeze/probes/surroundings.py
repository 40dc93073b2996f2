"""Where the target runs: processors, memory, limits, settings and versions.

Nothing is imported for it but the standard library, and nothing is changed: the start method is read without fixing it.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import tempfile
from importlib import metadata

from antifreeze import machine
from antifreeze.doctor.facts import Machine

THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "TOKENIZERS_PARALLELISM",
    "OPENCV_FOR_THREADS_NUM",
    "OPENCV_OPENMP_NUM_THREADS",
)
PACKAGES = (
    "torch",
    "numpy",
    "opencv-python",
    "opencv-python-headless",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
    "h5py",
    "lmdb",
    "scikit-learn",
    "polars",
    "tokenizers",
    "pillow",
    "lightning",
    "accelerate",
    "transformers",
)


def look_at_machine() -> Machine:
    room, descriptors = machine.shared_memory_room(), machine.descriptor_limits()
    return Machine(
        cpus=os.cpu_count() or 1,
        usable_cpus=machine.usable_cpus(),
        cpu_quota=machine.cpu_quota(),
        memory_available_bytes=machine.available_memory() if machine.is_linux() else None,
        memory_limit_bytes=machine.memory_limit(),
        shm_total_bytes=room.total_bytes if room else None,
        shm_free_bytes=room.free_bytes if room else None,
        descriptors_soft=descriptors.soft if descriptors else None,
        descriptors_hard=descriptors.hard if descriptors else None,
        start_method=start_method(),
        thread_settings={name: os.environ[name] for name in THREAD_SETTINGS if name in os.environ},
        versions={"python": platform.python_version(), **installed()},
        temporary_directory=tempfile.gettempdir(),
        ptrace_scope=machine.ptrace_scope(),
    )


def start_method() -> str:
    """That Python starts processes with here; to ask for it in the usual way would fix it."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def installed() -> dict[str, str]:
    """The versions of the packages that checks care for."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
