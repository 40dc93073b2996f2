"""A sample is fetched over the network, by a call that waits without limit.

What happens: `requests.get`, `urlopen` and plain sockets wait for ever unless they are told otherwise. One lost answer
among millions, and one worker waits for it; torch's loader waits for that worker, and training stands still, without
an error, until somebody looks.

How we know: the source. A call that waits without limit stands in the code that runs per sample. Whether the other
side ever fails to answer, nobody can read from that: we call it possible. If a trial hangs there, AF103 says so.

What to do: give the call a time-out, and let the sample be tried again: `requests.get(url, timeout=10)`,
`urllib.request.urlopen(url, timeout=10)`, `socket.create_connection(address, timeout=10)`, or
`socket.setdefaulttimeout(10)` for all sockets of the program. `antifreeze run train.py` stops a worker that is stuck
at a sample, and fetches that sample again.

Looks like: AF103 sample-hangs, which is the same once it has happened.

Read on: https://requests.readthedocs.io/en/latest/user/advanced/#timeouts,
https://docs.python.org/3/library/socket.html#socket.setdefaulttimeout
"""

from __future__ import annotations

from antifreeze.doctor.cases import sights_in
from antifreeze.doctor.check import program_check
from antifreeze.doctor.facts import DatasetClass, Facts, Place, Sight, Source
from antifreeze.doctor.finding import Finding, Weight

_GET = Sight(kind="call-without-timeout", what="requests.get", place=Place("data.py", 57))
SICK = Facts(
    source=Source(script="train.py", datasets=(DatasetClass(name="Remote", place=_GET.place, sights=(_GET,)),))
)
HEALTHY = Facts(source=Source(script="train.py", datasets=(DatasetClass(name="Remote", place=_GET.place),)))


@program_check("AF110", "call-without-timeout", sick=SICK, healthy=HEALTHY)
def call_without_timeout(facts: Facts) -> list[Finding]:
    datasets = facts.source.datasets if facts.source else ()
    calls = {sight.place: sight for sight in sights_in(datasets, "call-without-timeout")}
    return [_finding(call) for call in calls.values()]


def _finding(sight: Sight) -> Finding:
    return Finding(
        weight=Weight.POSSIBLE,
        what="an answer that never comes would stop a worker, and with it the training, for ever",
        where=sight.place,
        why=f"{sight.what} has no time-out here, and it runs for every sample",
        fix=(_with_timeout(sight.what), "antifreeze run {script}"),
        evidence=("read in the source",),
        decide="antifreeze doctor {script}",
    )


def _with_timeout(name: str) -> str:
    if name == "urllib.request.urlretrieve":
        return "urllib.request.urlopen(url, timeout=10) instead of urlretrieve, which has no time-out"
    return f"{name}(…, timeout=10)"
