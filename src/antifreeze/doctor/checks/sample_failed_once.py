"""A sample failed, and loaded well when it was tried again.

What happens: a read from a network disk, a bucket or a server fails once in a while: `OSError: Input/output error`, a
reset connection, a time-out. torch raises it in the training process, and a run of days ends.

How we know: the exception came in one trial, and the same sample loaded in another.

What to do: `antifreeze run --retry 2 train.py` loads such a sample again. In your code: `try` … `except OSError:` and
read again, after a moment.

Looks like: AF321 sample-fails, where it fails every time; AF307 shared-file-offset and AF308 shared-connection, where
it fails in some trials with workers, because they share a handle.

Read on: https://docs.python.org/3/library/exceptions.html#os-exceptions
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase, at, comes_again, failed_at, first_line, raised_in
from antifreeze.doctor.check import check
from antifreeze.doctor.examples import FORKED, as_written, tried, with_workers
from antifreeze.doctor.facts import Outcome, Place, Raised
from antifreeze.doctor.finding import Finding, Weight

# Of reads over a network or from a disk; other errors do not pass by themselves.
PASSING = re.compile(
    r"(^|\.)(OSError|IOError|TimeoutError|timeout|Connection\w*|ReadTimeout\w*|\w*ConnectionError|HTTPError|URLError|"
    r"IncompleteRead|ProtocolError|BrokenPipeError|BlockingIOError|InterruptedError|EndpointConnectionError)$"
    r"|^(requests|urllib3|botocore|aiohttp|httpx|fsspec|s3fs|gcsfs)\."
)

_RAISED = Raised(
    type="OSError",
    message="[Errno 5] Input/output error: '/mnt/nfs/train/000013.npy'",
    stage="fetch",
    place=Place("train.py", 35),
    sample="13",
)
_TRIAL = as_written(Outcome.ERROR, raised=_RAISED)
SICK = tried(FORKED, _TRIAL, with_workers(0, is_whole_epoch=True))
HEALTHY = tried(FORKED, _TRIAL, with_workers(0, Outcome.ERROR, raised=_RAISED))


@check("AF322", "sample-failed-once", sick=SICK, healthy=HEALTHY)
def sample_failed_once(case: LoaderCase) -> Iterator[Finding]:
    failed = [trial for trial in raised_in(case, "fetch") if not trial.deaths]
    raised = failed[0].raised if failed else None
    if raised is None or raised.type == "StopIteration" or comes_again(case, raised.sample, failed_at) is not False:
        return
    is_passing = bool(PASSING.search(raised.type))
    yield Finding(
        weight=Weight.LIKELY if is_passing else Weight.POSSIBLE,
        what=f"sample {raised.sample} failed once, and loaded well when it was tried again",
        where=raised.place,
        why=f"{raised.type}{at(raised.place)}: {first_line(raised.message)}; torch ends the epoch at the first error",
        fix=(
            "antifreeze run --retry 2 {script}",
            f"read once more in the dataset: except {raised.type.rpartition('.')[2]}: time.sleep(1) …",
        ),
        evidence=(case.counted(failed), f"sample {raised.sample} loaded in another trial"),
        seen=raised,
        rivals=() if is_passing else ("AF307", "AF321"),
        decide=None if is_passing else "antifreeze run --retry 1 {script}",
    )
