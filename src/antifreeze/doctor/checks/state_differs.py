"""Workers that start from a fresh import see other settings or globals than the training process.

What happens: with spawn or forkserver, a worker imports the program's modules anew. What the program
changed since (a configuration global, a registry, `ImageFile.LOAD_TRUNCATED_IMAGES`, a monkeypatch) is as it was at
import there. Samples come out differently, or fail, and nobody says so.

How we know: samples from workers that were not forked differ from those that the training process gets, where that gets
the same twice.

What to do: pass such settings to the dataset (`self.root = root`), or set them on import, or in `worker_init_fn`.
`multiprocessing_context="fork"` keeps everything.

Looks like: AF307 shared-file-offset, where samples differ because forked workers share a file; AF503 stale-dataset,
where a change comes too late for persistent workers.

Read on: https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods,
https://docs.pytorch.org/docs/stable/data.html#platform-specific-behaviors
"""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import IMPORTING, LoaderCase
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import as_written, tried
from antifreeze.doctor.facts import Loader, Place
from antifreeze.doctor.finding import Finding, Weight

FORK = 'DataLoader(…, multiprocessing_context="fork")'

_LOADER = Loader(number=0, num_workers=2, start_method="spawn", built_at=Place("train.py", 40))
SICK = tried(_LOADER, as_written(start_method="spawn", wrong=("0", "1")))
HEALTHY = tried(_LOADER, as_written(start_method="spawn"))


@check("AF302", "state-differs", sick=SICK, healthy=HEALTHY)
def state_differs(case: LoaderCase) -> Iterator[Finding]:
    wrong = [trial for trial in case.trials if trial.wrong and case.start_method in IMPORTING]
    if not wrong:
        return
    samples = f"samples {', '.join(wrong[0].wrong[:5])} differ from those of the training process"
    yield Finding(
        weight=Weight.LIKELY,
        what="workers see other settings than the training process, and may give other samples",
        where=case.built_at,
        why=f"{samples}; workers start from a fresh import of the program's modules",
        fix=("give the settings to the dataset: self.root = root", FORK),
        evidence=(samples,),
        sample=wrong[0].wrong[0],
    )
