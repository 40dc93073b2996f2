"""One disease per file. A check is a module with

- a docstring: the disease in one sentence, then paragraphs that begin with `What happens:`, `How we know:`, `What to do:`,
  `Looks like:` (what it is confused with, by code) and `Read on:` (links). It is `antifreeze explain CODE` and the page in
  `docs/checks/`, so it is written for users.
- `CODE`, whose name in `codes.py` is the name of the file.
- `SICK` and `HEALTHY`: facts that it finds something in, and facts that it must not; its tests, and examples in its page.
- `examine(facts) -> list[Finding]`, pure. Silent where a fact is missing: a wrong diagnosis costs more than none.

To add one: its file, its line below, its code, and facts of a program that has it in `tests/doctor/test_zoo_by_hand.py`.
"""

from __future__ import annotations

from typing import Protocol

from antifreeze.doctor.checks import (
    abandoned_lock,
    bad_combination,
    call_without_timeout,
    cannot_cross,
    class_under_main_guard,
    copied_generator,
    copy_on_write_growth,
    cuda_in_fork,
    data_bound,
    dataset_copied_to_workers,
    descriptors_run_out,
    error_cannot_be_sent,
    few_descriptors,
    few_processors,
    fixed_worker_seed,
    fork_after_threads,
    forked_database,
    index_out_of_range,
    inherited_lock,
    lock_around_reads,
    long_temporary_directory,
    lost_native_pool,
    many_small_tensors,
    no_main_guard,
    non_finite_sample,
    none_sample,
    not_in_loading,
    one_path_for_all,
    orphaned_workers,
    poison_sample,
    processes_in_worker,
    result_cannot_be_sent,
    same_order_every_epoch,
    sample_failed_once,
    sample_fails,
    sample_hangs,
    sample_never_ends,
    sampler_fails,
    samples_do_not_stack,
    second_epoch_fails,
    shared_connection,
    shared_file_offset,
    shared_memory_overcommitted,
    shm_too_small,
    slow_shutdown,
    small_shm,
    stale_dataset,
    start_method_set_twice,
    state_differs,
    stop_iteration_in_getitem,
    timeout_too_short,
    too_many_workers,
    unrepeatable_stream,
    unsharded_stream,
    waits_for_another_rank,
    worker_crashed,
    worker_exited,
    worker_init_fails,
    worker_killed,
    worker_memory_grows,
    worker_state_lost,
    worker_stopped,
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
    fork_after_threads,
    lost_native_pool,
    sample_hangs,
    inherited_lock,
    cuda_in_fork,
    orphaned_workers,
    abandoned_lock,
    sample_never_ends,
    timeout_too_short,
    call_without_timeout,
    not_in_loading,
    worker_stopped,
    descriptors_run_out,
    shm_too_small,
    shared_memory_overcommitted,
    copy_on_write_growth,
    worker_memory_grows,
    dataset_copied_to_workers,
    cannot_cross,
    state_differs,
    class_under_main_guard,
    no_main_guard,
    result_cannot_be_sent,
    error_cannot_be_sent,
    shared_file_offset,
    shared_connection,
    forked_database,
    worker_killed,
    worker_crashed,
    poison_sample,
    worker_exited,
    sample_fails,
    sample_failed_once,
    worker_init_fails,
    index_out_of_range,
    stop_iteration_in_getitem,
    samples_do_not_stack,
    sampler_fails,
    processes_in_worker,
    none_sample,
    worker_state_lost,
    non_finite_sample,
    one_path_for_all,
    second_epoch_fails,
    workers_restarted,
    many_small_tensors,
    lock_around_reads,
    too_many_workers,
    slow_shutdown,
    data_bound,
    copied_generator,
    unsharded_stream,
    stale_dataset,
    unrepeatable_stream,
    fixed_worker_seed,
    waits_for_another_rank,
    same_order_every_epoch,
    few_processors,
    small_shm,
    few_descriptors,
    bad_combination,
    start_method_set_twice,
    long_temporary_directory,
)
