"""AF905 and AF304: who says that the start method has been set, the program or its workers."""

import dataclasses

from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.facts import Facts, Loader, LoaderCall, LoaderLoop, Outcome, Place, Run, Source, Trial
from antifreeze.doctor.finding import Weight

SAID = "RuntimeError: context has already been set"
CALL = LoaderCall(place=Place("train.py", 15), workers=2)
SETS = Place("train.py", 6, text='set_start_method("spawn")')
GUARDED = LoaderLoop(place=Place("train.py", 16), loader=CALL.place)
WORKERS_SAY_IT = Facts(
    run=Run(command="python train.py", outcome=Outcome.OK, reached_a_loader=True, stderr=SAID),
    source=Source(script="train.py", loaders=(CALL,), loops=(GUARDED,), start_method="spawn", start_methods=(SETS,)),
    loaders=(Loader(number=0, num_workers=2, start_method="spawn", built_at=CALL.place, iterated_at=GUARDED.place),),
    trials=(
        Trial(loader=0, engine="torch", workers=2, outcome=Outcome.CRASH, is_as_written=True, stderr=SAID),
        Trial(loader=0, engine="torch", workers=0, outcome=Outcome.OK),
    ),
)


def test_workers_that_set_it_again_are_told_the_line_that_needs_a_guard() -> None:
    finding = diagnose(WORKERS_SAY_IT)[0]
    assert (finding.code, finding.weight, finding.where) == ("AF905", Weight.CERTAIN, SETS)
    assert "__main__" in finding.fix[0]


def test_workers_that_start_the_whole_training_again_lack_a_guard_and_nothing_else() -> None:
    assert WORKERS_SAY_IT.source is not None
    loop = dataclasses.replace(GUARDED, called_from=Place("train.py", 20, text="main()"))
    source = dataclasses.replace(WORKERS_SAY_IT.source, loops=(loop,))
    findings = diagnose(dataclasses.replace(WORKERS_SAY_IT, source=source))
    assert [(finding.code, finding.weight) for finding in findings] == [("AF304", Weight.CERTAIN)]
