"""AF903: few descriptors, if something suggests that they will not do."""

import dataclasses

import pytest

from antifreeze.doctor.checks.few_descriptors import few_descriptors
from antifreeze.doctor.facts import Facts, Loader, Machine, Outcome, Place, Source, Trial

FEW = Machine(cpus=8, usable_cpus=8, descriptors_soft=1024, descriptors_hard=4096)
LOADER = Loader(number=0, built_at=Place("train.py", 9), num_workers=4, prefetch_factor=2)


def measured(tensors: int) -> Facts:
    trial = Trial(loader=0, engine="torch", workers=4, outcome=Outcome.OK, batch_tensors=tensors)
    return Facts(machine=FEW, source=Source(script="train.py"), loaders=(LOADER,), trials=(trial,))


def test_of_a_machine_that_they_are_few_is_enough_and_the_hard_limit_is_what_can_be_had() -> None:
    (finding,) = few_descriptors.examine(Facts(machine=FEW))
    assert finding.fix[0] == "ulimit -n 4096"


def test_batches_of_many_tensors_are_named_with_their_loader() -> None:
    (finding,) = few_descriptors.examine(measured(65))
    assert finding.where == LOADER.built_at
    assert "8 batches of 65 tensors" in finding.why
    assert not few_descriptors.examine(measured(64))


@pytest.mark.parametrize("limit", [1025, None])
def test_enough_descriptors_are_fine(limit: int | None) -> None:
    machine = dataclasses.replace(FEW, descriptors_soft=limit)
    assert not few_descriptors.examine(Facts(machine=machine))
    assert not few_descriptors.examine(dataclasses.replace(few_descriptors.sick, machine=machine))
