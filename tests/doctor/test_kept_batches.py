"""AF203 and AF204 of batches that a loop keeps: how much of them decides how sure that is."""

import dataclasses

import pytest

from antifreeze.doctor.checks.descriptors_run_out import descriptors_run_out
from antifreeze.doctor.checks.shm_too_small import shm_too_small
from antifreeze.doctor.facts import Facts, Loader, LoaderLoop, Machine, Outcome, Place, Raised, Source, Trial
from antifreeze.doctor.finding import Weight

MB = 1 << 20
LINE = Place("train.py", 9, text="kept.append(x)")
LOADER = Loader(number=0, built_at=Place("train.py", 7), num_workers=2, prefetch_factor=2, batches=20)


def keeping(*, keeps_all: bool, batches: int = 20, tensors: int = 2, kept: tuple[Place, ...] = (LINE,)) -> Facts:
    loop = LoaderLoop(place=Place("train.py", 8), loader=LOADER.built_at, kept=kept, keeps_all=keeps_all)
    trial = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.OK, batch_bytes=4 * MB, batch_tensors=tensors)
    return Facts(
        machine=Machine(cpus=2, usable_cpus=2, shm_total_bytes=64 * MB, descriptors_soft=256, descriptors_hard=4096),
        source=Source(script="train.py", loops=(loop,)),
        loaders=(dataclasses.replace(LOADER, batches=batches),),
        trials=(dataclasses.replace(trial, is_as_written=True),),
    )


def test_kept_batches_that_do_not_fit_into_shared_memory_are_named_with_the_line_that_keeps_them() -> None:
    (finding,) = shm_too_small.examine(keeping(keeps_all=True))
    assert finding.weight is Weight.LIKELY
    assert finding.where == LINE


def test_a_part_of_batches_may_fit_where_all_of_them_do_not() -> None:
    (finding,) = shm_too_small.examine(keeping(keeps_all=False))
    assert finding.weight is Weight.POSSIBLE


@pytest.mark.parametrize("facts", [keeping(keeps_all=True, batches=16), keeping(keeps_all=False, kept=())])
def test_shared_memory_is_enough_for_what_fits_and_for_what_is_let_go(facts: Facts) -> None:
    assert shm_too_small.examine(facts) == []


def test_every_tensor_of_kept_batches_holds_a_descriptor() -> None:
    (finding,) = descriptors_run_out.examine(keeping(keeps_all=True, tensors=16))
    assert finding.weight is Weight.LIKELY
    (finding,) = descriptors_run_out.examine(keeping(keeps_all=False, tensors=16))
    assert finding.weight is Weight.POSSIBLE
    assert descriptors_run_out.examine(keeping(keeps_all=True)) == []


def test_a_dataset_that_runs_out_without_workers_holds_the_files_itself() -> None:
    opened = Place("train.py", 26, text="self.files[i] = open(path)")
    message = "[Errno 24] Too many open files: 'a.bin'"
    raised = Raised(type="OSError", message=message, stage="fetch", place=opened, sample="242")
    trials = tuple(
        Trial(loader=0, engine="torch", workers=workers, outcome=Outcome.ERROR, raised=raised) for workers in (2, 0)
    )
    (finding,) = descriptors_run_out.examine(dataclasses.replace(keeping(keeps_all=False, kept=()), trials=trials))
    assert (finding.where, finding.sample) == (opened, "242")
    assert "close" in finding.fix[0]


def test_tensors_on_their_way_are_counted_where_nothing_is_kept() -> None:
    raised = Raised(type="RuntimeError", message="Too many open files", stage="send")
    trial = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.HANG, raised=raised, batch_tensors=360)
    facts = dataclasses.replace(keeping(keeps_all=False, kept=()), trials=(trial,))
    (finding,) = descriptors_run_out.examine(facts)
    assert "4 batches of up to 360 tensors" in finding.why
    assert not any("clone" in fix for fix in finding.fix)
