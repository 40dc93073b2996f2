"""Samples of a subset, by the names that the whole dataset has for them."""

from dataclasses import replace

from torch.utils.data import Subset

from antifreeze.doctor.facts import Facts, Loader, Outcome, Place, Raised, SlowSample, Trial
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.render.text import Look, as_block
from antifreeze.probes.target.subsets import originals

RAISED = Raised(type="KeyError", message="", stage="fetch", sample="1")
TRIAL = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.ERROR, raised=RAISED)


def test_the_index_in_the_whole_dataset_is_found_through_all_subsets() -> None:
    part = Subset(Subset(range(100), [50, 60, 70, 80]), [3, 2])  # type: ignore[arg-type]
    slow = (SlowSample(sample="0", seconds=1.0), SlowSample(sample="('a', 1)", seconds=1.0))
    trial = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.ERROR, raised=RAISED, slowest=slow)
    assert originals(part, trial) == {"1": "70", "0": "80"}


def test_a_whole_dataset_has_one_name_for_each_sample() -> None:
    assert originals(range(100), TRIAL) == {}


def test_a_finding_names_both() -> None:
    facts = Facts(loaders=(Loader(number=0),), trials=(replace(TRIAL, originals={"1": "70"}),))
    finding = Finding(
        code="AF321", weight=Weight.CERTAIN, what="", where=Place("a.py", 1), why="", fix=(), loader=0, sample="1"
    )
    assert "sample 1 of the subset, 70 of the whole dataset" in as_block(finding, facts, look=Look())
