"""AF305: batches that cannot be sent because of what they are, or of what they carry."""

import dataclasses

from antifreeze.doctor.checks.result_cannot_be_sent import result_cannot_be_sent
from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.facts import Facts, Loader, Outcome, Place, Raised, Trial

COLLATE, DATASET = Place("train.py", 18), Place("train.py", 7)
LOADER = Loader(number=0, num_workers=2, dataset_at=DATASET, collate_at=COLLATE, has_default_collate=False)


def failing(raised: Raised) -> Facts:
    trial = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.ERROR, is_as_written=True, raised=raised)
    good = Trial(loader=0, engine="torch", workers=0, outcome=Outcome.OK, is_whole_epoch=True, samples=9)
    return Facts(loaders=(LOADER,), trials=(trial, good))


def test_tensors_with_gradients_are_named_wherever_torch_stumbles_over_them() -> None:
    stacked = (
        "stack(): functions with out=... arguments don't support automatic differentiation, but one … requires grad."
    )
    sent = (
        "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing"
    )
    for stage, message in (("collate", stacked), ("send", sent)):
        findings = diagnose(failing(Raised(type="RuntimeError", message=message, stage=stage, batch=("0", "1"))))
        assert [finding.code for finding in findings] == ["AF305"]
        assert "detach" in findings[0].fix[0]


def test_a_class_of_the_batch_is_looked_for_in_the_collate_fn() -> None:
    raised = Raised(type="PicklingError", message="…", stage="send", culprit="batch.__class__ is the class Batch")
    (finding,) = result_cannot_be_sent.examine(failing(raised))
    assert finding.where == COLLATE
    assert finding.why.startswith("batch.__class__ is the class Batch, which cannot be pickled")
    loader = dataclasses.replace(LOADER, collate_at=None)
    (finding,) = result_cannot_be_sent.examine(dataclasses.replace(failing(raised), loaders=(loader,)))
    assert finding.where == DATASET
