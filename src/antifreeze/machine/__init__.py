"""What this machine and its processes are like: the only place that reads `/proc` and `/sys`.

Everything here answers on any system; where the answer cannot be had, it is the harmless one.
"""

from antifreeze.machine.kin import (
    Kin,
    age_s,
    descendants_of,
    directory_of,
    environment_of,
    has_mapped,
    kin_of,
    resident_bytes,
    started_with_variable,
)
from antifreeze.machine.mappings import (
    MappedFile,
    Mapping,
    Memory,
    faulted_bytes,
    mapped_files,
    memory_since,
    own_bytes,
    private_mappings,
)
from antifreeze.machine.memory import available_memory, memory_facts, oom_kills
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
from antifreeze.machine.processes import GroupFacts, ProcessFacts, facts_of_groups, process_facts
from antifreeze.machine.rights import Rights, catches, ptrace_scope, rights_over
from antifreeze.machine.waiting import Wait, asleep_s, holds_open, open_appended, peer_of, wait_of

__all__ = [
    "GroupFacts",
    "Kin",
    "MappedFile",
    "Mapping",
    "Memory",
    "ProcessFacts",
    "Rights",
    "Wait",
    "age_s",
    "asleep_s",
    "available_memory",
    "catches",
    "descendants_of",
    "descriptor_limit",
    "directory_of",
    "environment_of",
    "facts_of_groups",
    "faulted_bytes",
    "give_own_offsets",
    "has_mapped",
    "has_open",
    "holds_open",
    "is_linux",
    "kin_of",
    "mapped_files",
    "memory_facts",
    "memory_since",
    "oom_kills",
    "open_again",
    "open_appended",
    "own_bytes",
    "path_of",
    "peer_of",
    "private_mappings",
    "process_facts",
    "ptrace_scope",
    "resident_bytes",
    "rights_over",
    "started_with",
    "started_with_variable",
    "thread_names",
    "umask",
    "wait_of",
    "waited_for_processor_s",
]
