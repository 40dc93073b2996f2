"""The codes of all checks, and their names: never renumbered, never reused.

Code and name stand at the check itself, in the file in `doctor/checks/` that is called like it; `make docs` copies them
here, so that the engine can name a problem in a message without importing the checks. Families: AF1 freezes; AF2 memory
and descriptors; AF3 data errors, dead workers, pickling; AF4 speed; AF5 randomness and duplicates; AF6 distributed; AF9
the machine.
"""

from __future__ import annotations

# Written by `make docs`.
NAMES = {
    "AF101": "fork-after-threads",
    "AF102": "lost-native-pool",
    "AF103": "sample-hangs",
    "AF104": "inherited-lock",
    "AF105": "cuda-in-fork",
    "AF106": "orphaned-workers",
    "AF107": "abandoned-lock",
    "AF108": "sample-never-ends",
    "AF109": "timeout-too-short",
    "AF110": "call-without-timeout",
    "AF111": "not-in-loading",
    "AF112": "worker-stopped",
    "AF203": "descriptors-run-out",
    "AF204": "shm-too-small",
    "AF205": "shared-memory-overcommitted",
    "AF206": "copy-on-write-growth",
    "AF207": "worker-memory-grows",
    "AF208": "dataset-copied-to-workers",
    "AF301": "cannot-cross",
    "AF302": "state-differs",
    "AF303": "class-under-main-guard",
    "AF304": "no-main-guard",
    "AF305": "result-cannot-be-sent",
    "AF306": "error-cannot-be-sent",
    "AF307": "shared-file-offset",
    "AF308": "shared-connection",
    "AF309": "forked-database",
    "AF311": "worker-killed",
    "AF312": "worker-crashed",
    "AF313": "poison-sample",
    "AF314": "worker-exited",
    "AF321": "sample-fails",
    "AF322": "sample-failed-once",
    "AF323": "worker-init-fails",
    "AF324": "index-out-of-range",
    "AF325": "stop-iteration-in-getitem",
    "AF326": "samples-do-not-stack",
    "AF327": "sampler-fails",
    "AF328": "processes-in-worker",
    "AF329": "none-sample",
    "AF330": "worker-state-lost",
    "AF331": "non-finite-sample",
    "AF332": "one-path-for-all",
    "AF333": "second-epoch-fails",
    "AF401": "workers-restarted",
    "AF402": "many-small-tensors",
    "AF403": "lock-around-reads",
    "AF404": "too-many-workers",
    "AF405": "slow-shutdown",
    "AF406": "data-bound",
    "AF501": "copied-generator",
    "AF502": "unsharded-stream",
    "AF503": "stale-dataset",
    "AF504": "unrepeatable-stream",
    "AF505": "fixed-worker-seed",
    "AF601": "waits-for-another-rank",
    "AF602": "same-order-every-epoch",
    "AF901": "few-processors",
    "AF902": "small-shm",
    "AF903": "few-descriptors",
    "AF904": "bad-combination",
    "AF905": "start-method-set-twice",
    "AF906": "long-temporary-directory",
}


def named(code: str) -> str:
    """A code with the name of its problem, as it stands in messages."""
    return f"{code} {NAMES[code]}"
