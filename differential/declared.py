"""The table of declared differences: all that may be otherwise on antifreeze than on torch, each with its reason.

`python -m differential` fails on every difference that is not here, and on every entry that no program needs any more.
docs/differential.md has this table, and docs/drop-in.md says the same to users.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Declared:
    """An allowed difference. The four patterns must match the whole text (`re.DOTALL`)."""

    name: str
    torch_does: str
    we_do: str
    why: str
    program: str = ".*"
    where: str = ".*"
    torch: str = ".*"
    ours: str = ".*"


# Lines that messages of exceptions have in addition to torch's.
ADDED_LINES = (r"antifreeze: (worker|loaded in) .*",)

DECLARED = (
    Declared(
        "exceptions that need arguments",
        "an exception whose constructor takes other arguments than a message becomes a `RuntimeError`",
        "it keeps its type",
        "`except` means what it says",
        program="loader .*",
        where="error( of the pass)?",
        torch=r"builtins\.RuntimeError .*\nCaught DemandingError in .*",
        ours=r"differential\.loaders\.datasets\.DemandingError .*because.*",
    ),
    Declared(
        "exceptions that need arguments, in a script",
        "as above: `RuntimeError`",
        "the exception itself; what torch would have said is in its notes",
        "`except` means what it says",
        program="script errors/that_need_arguments .*",
        where="stdout",
        torch="RuntimeError",
        ours="UnicodeDecodeError|NotFound",
    ),
    Declared(
        "exception groups",
        "an `ExceptionGroup` becomes a `TypeError` about its constructor",
        "it stays an `ExceptionGroup`",
        "`except*` means what it says",
        program="loader .*",
        where="error( of the pass)?",
        torch=r"builtins\.TypeError .*\nBaseExceptionGroup\.__new__\(\) takes .*",
        ours=r"builtins\.ExceptionGroup .*",
    ),
    Declared(
        "after a failed beginning",
        "a worker whose `worker_init_fn` or `__iter__` failed answers later batches with `UnboundLocalError`",
        "each batch has the error itself",
        "the first error is the one to be read",
        program="script errors/(after_failed_init|of_a_stream) .*",
        where="stdout",
        torch="UnboundLocalError.*",
        ours="(Connection|OS)Error.*",
    ),
    Declared(
        "timeout",
        "`timeout=` raises `RuntimeError`",
        "it raises `WorkerFrozen`, a subclass, with the same first line",
        "the message says which worker, sample and line; `except RuntimeError` works",
        program="script errors/timeout .*",
        where="stdout",
        torch="RuntimeError DataLoader timed out .*",
        ours="WorkerFrozen DataLoader timed out .*",
    ),
    Declared(
        "conjugate tensors",
        "tensors with the conjugate bit cannot be collated in a worker, and lose the bit if they are not collated",
        "they arrive as they are",
        "a fault of torch",
        program="script samples/conjugate .*",
        where="stdout",
    ),
    Declared(
        "a worker that dies again and again",
        "a worker that dies is an error at once: `DataLoader worker … exited unexpectedly`",
        "the batch is tried on new workers, and then the error says what killed them",
        "[faults.md](faults.md)",
        program="script processes/dying_worker .*",
        where="stdout",
        torch="RuntimeError True",
        ours="RuntimeError False",
    ),
    Declared(
        "StopIteration",
        "`StopIteration` in `__getitem__` ends the epoch early, in silence",
        "it is an error of that batch, `SampleFailed`",
        "samples would be lost unseen",
        program="script processes/stop_iteration .*",
        where="stdout",
        torch=r"\[0, 1\]",
        ours="RuntimeError",
    ),
    Declared(
        "tensors that require grad",
        "tensors that are not leaves and require grad cannot be sent, and the loop waits for them",
        "they arrive, and require grad",
        "nothing is lost by it; `.detach()` in the dataset is torch's way",
        program="script sharing/requires_grad .*",
        where="stdout",
        torch=r"RuntimeError|\(nothing\)",
        ours=r".*tensor\(\[.*|.*requires_grad=True\)",
    ),
    Declared(
        "tensors of the dataset that are not collated",
        "a plain tensor that is returned without collation is moved to shared memory, so that what the trainer writes "
        "to it is seen by the worker, and is its next sample",
        "the trainer has a copy",
        "a dataset is not changed behind its back; `share_memory_()` says that it may be",
        program="script sharing/returned_plain_tensors .*",
        where="stdout",
    ),
    Declared(
        "warning about sparse tensors",
        "a sparse tensor that comes from a worker is checked anew, and torch warns once that it is not checked",
        "there is no such warning",
        "the tensor was made in the worker, and torch says it there",
        program="loader .*",
        where="warning",
        torch="UserWarning: Sparse invariant checks are implicitly disabled.*",
        ours=r"\(nothing\)",
    ),
    Declared(
        "lambdas under spawn",
        "under spawn, lambdas and local classes are errors",
        "they reach the workers",
        "[crossing.md](crossing.md)",
        program="script modules/closures_spawned .*",
        where="stdout",
        torch="not possible",
        ours=r"\[\[0, 1\], \[2, 3\]\]",
    ),
)
