"""One disease per file. A check is a module with

- a docstring: the disease in one sentence, then paragraphs that begin with `What happens:`, `How we know:`, `What to do:`,
  `Looks like:` (what it is confused with, by code) and `Read on:` (links). It is `antifreeze explain CODE` and the page in
  `docs/checks/`, so it is written for users.
- `CODE`, whose name in `codes.py` is the name of the file.
- `SICK` and `HEALTHY`: facts that it finds something in, and facts that it must not; its tests, and examples in its page.
- `examine(facts) -> list[Finding]`, pure. Silent where a fact is missing: a wrong diagnosis costs more than none.

To add one: its file, its line below, its code, a sick program in `tests/patients/`.
"""

from __future__ import annotations

from typing import Protocol

from antifreeze.doctor.checks import (
    bad_combination,
    call_without_timeout,
    class_under_main_guard,
    few_descriptors,
    few_processors,
    fixed_worker_seed,
    lock_around_reads,
    no_main_guard,
    not_in_loading,
    one_path_for_all,
    shm_too_small,
    small_shm,
    stale_dataset,
    start_method_set_twice,
    too_many_workers,
    waits_for_another_rank,
    worker_state_lost,
    workers_restarted,
)
from antifreeze.doctor.facts import Facts
from antifreeze.doctor.finding import Finding


class Check(Protocol):
    """What a module of this package offers."""

    __name__: str
    __doc__: str | None
    CODE: str
    SICK: Facts
    HEALTHY: Facts

    def examine(self, facts: Facts) -> list[Finding]: ...


# By code.
CHECKS: tuple[Check, ...] = (
    call_without_timeout,
    not_in_loading,
    shm_too_small,
    class_under_main_guard,
    no_main_guard,
    worker_state_lost,
    one_path_for_all,
    workers_restarted,
    lock_around_reads,
    too_many_workers,
    stale_dataset,
    fixed_worker_seed,
    waits_for_another_rank,
    few_processors,
    small_shm,
    few_descriptors,
    bad_combination,
    start_method_set_twice,
)
