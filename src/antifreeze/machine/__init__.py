"""What this machine and its processes are like: the only place that reads `/proc` and `/sys`.

Everything here answers on any system; where the answer cannot be had, it is the harmless one.
"""

from antifreeze.machine.families import Families, GroupFacts, facts_of_groups
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
    umask,
    waited_for_processor_s,
)
from antifreeze.machine.processes import ProcessFacts, exit_code_of, process_facts
from antifreeze.machine.rights import Rights, catches, rights_over
from antifreeze.machine.threads import files_waited_in, thread_names
from antifreeze.machine.waiting import Wait, asleep_s, holds_open, open_appended, peer_of, wait_of

__all__ = [
    "Descriptors",
    "Families",
    "GroupFacts",
    "Kin",
    "MappedFile",
    "Mapping",
    "Memory",
    "ProcessFacts",
    "Rights",
    "Room",
    "Wait",
    "age_s",
    "allowed_cpus",
    "asleep_s",
    "available_memory",
    "catches",
    "cpu_quota",
    "descendants_of",
    "descriptor_limit",
    "descriptor_limits",
    "directory_of",
    "environment_of",
    "exit_code_of",
    "facts_of_groups",
    "faulted_bytes",
    "files_waited_in",
    "give_own_offsets",
    "has_mapped",
    "has_open",
    "holds_open",
    "is_linux",
    "kin_of",
    "mapped_files",
    "memory_facts",
    "memory_limit",
    "memory_since",
    "oom_kills",
    "open_again",
    "open_appended",
    "own_bytes",
    "path_of",
    "peer_of",
    "private_bytes",
    "private_mappings",
    "process_facts",
    "ptrace_scope",
    "resident_bytes",
    "rights_over",
    "shared_memory_room",
    "started_with",
    "started_with_variable",
    "thread_names",
    "umask",
    "usable_cpus",
    "wait_of",
    "waited_for_processor_s",
]
