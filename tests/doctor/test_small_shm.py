"""AF902: little shared memory, as long as nobody has measured what is needed."""

import dataclasses

from antifreeze.doctor.checks.small_shm import small_shm
from antifreeze.doctor.facts import Facts, Loader, Machine

SMALL = small_shm.sick.machine


def test_a_machine_with_plenty_or_without_any_is_fine() -> None:
    for size in (1 << 30, None):
        assert not small_shm.examine(Facts(machine=Machine(cpus=1, usable_cpus=1, shm_total_bytes=size)))
    assert not small_shm.examine(Facts())


def test_once_batches_are_measured_this_check_has_nothing_to_say() -> None:
    assert not small_shm.examine(small_shm.healthy)
    assert small_shm.examine(dataclasses.replace(small_shm.healthy, trials=()))


def test_loaders_without_workers_need_none() -> None:
    assert not small_shm.examine(Facts(machine=SMALL, loaders=(Loader(number=0),)))
