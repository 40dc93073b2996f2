"""What this machine and its processes are like: the only place that reads `/proc` and `/sys`.

Everything here answers on any system; where the answer cannot be had, it is the harmless one.
"""

from antifreeze.machine.limits import (
    Descriptors,
    Room,
    allowed_cpus,
    cpu_quota,
    descriptor_limits,
    ptrace_scope,
    shared_memory_room,
    usable_cpus,
)
from antifreeze.machine.mappings import (
    MappedFile,
    Mapping,
    Memory,
    faulted_bytes,
    mapped_files,
    memory_since,
    own_bytes,
    private_bytes,
    private_mappings,
)
from antifreeze.machine.memory import available_memory, memory_facts, memory_limit, oom_kills
from antifreeze.machine.own import (
    descriptor_limit,
    give_own_offsets,
    has_open,
    is_linux,
    open_again,
    path_of,
    started_with,
    thread_names,
    umask,
    waited_for_processor_s,
)
from antifreeze.machine.processes import GroupFacts, ProcessFacts, facts_of_groups, process_facts, processes_with

__all__ = [
    "Descriptors",
    "GroupFacts",
    "MappedFile",
    "Mapping",
    "Memory",
    "ProcessFacts",
    "Room",
    "allowed_cpus",
    "available_memory",
    "cpu_quota",
    "descriptor_limit",
    "descriptor_limits",
    "facts_of_groups",
    "faulted_bytes",
    "give_own_offsets",
    "has_open",
    "is_linux",
    "mapped_files",
    "memory_facts",
    "memory_limit",
    "memory_since",
    "oom_kills",
    "open_again",
    "own_bytes",
    "path_of",
    "private_bytes",
    "private_mappings",
    "process_facts",
    "processes_with",
    "ptrace_scope",
    "shared_memory_room",
    "started_with",
    "thread_names",
    "umask",
    "usable_cpus",
    "waited_for_processor_s",
]
