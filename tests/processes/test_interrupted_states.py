"""`state_dict()` says what the user has, also in a signal handler, and after what a handler has raised.

Programs save a checkpoint when they are told to end (SIGTERM, SIGUSR1 by a scheduler, Ctrl-C), at any moment of `next()`.
"""

from collections.abc import Callable

import pytest

from user_scripts import Ended

pytestmark = pytest.mark.usefixtures("not_for_torch")

MOMENTS = """
import faulthandler, os, signal, sys
import antifreeze
import torch
from antifreeze import StatefulDataLoader
from torch.utils.data import Dataset, IterableDataset, get_worker_info

OURS = os.path.dirname(antifreeze.__file__)
for case in sys.argv[1:]:  # each in a process of its own, which has not to import torch
    pid = os.fork()
    if pid == 0:
        break
    assert os.waitpid(pid, 0)[1] == 0, case
else:
    sys.exit()
workers, KIND, way, step = case.split()
WORKERS, IS_RAISING, STEP = int(workers), way == "raising", int(step)
BATCHES, SIZE = 12, 2


class Numbers(Dataset):
    def __len__(self):
        return BATCHES * SIZE
    def __getitem__(self, index):
        return torch.full((10_000,), index)


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for batch in range(first, BATCHES, step):
            for index in range(batch * SIZE, (batch + 1) * SIZE):
                yield torch.full((10_000,), index)


def make():
    dataset = Numbers() if KIND == "map" else Stream()
    keeps = bool(WORKERS) and not IS_RAISING
    return StatefulDataLoader(dataset, batch_size=SIZE, num_workers=WORKERS, persistent_workers=keeps)


def interrupt(signum, frame):
    if IS_RAISING:
        raise KeyboardInterrupt
    states.append((had, loader.state_dict()))


def next_with_a_signal(batches, moment):
    def look(frame, event, _):
        nonlocal moment
        code = frame.f_code
        if event in ("call", "c_return") and (code.co_filename.startswith(OURS) or code.co_name == "__next__"):
            moment -= 1
            if moment == 0:
                signal.raise_signal(signal.SIGUSR1)
    sys.setprofile(look)
    try:
        return next(batches), moment
    finally:
        sys.setprofile(None)


def first_after(state):
    resumed = make()
    resumed.load_state_dict(state)
    return int(next(iter(resumed))[0, 0])


signal.signal(signal.SIGUSR1, interrupt)
torch.set_num_threads(1)
states, had, moment, batches, loader = [], 0, 1, None, make()
while True:
    faulthandler.dump_traceback_later(15, exit=True)
    if batches is None or had >= BATCHES - 3:
        batches, had = iter(loader), 0
        for had in (1, 2):
            next(batches)
    try:
        batch, left = next_with_a_signal(batches, moment)
        assert batch[0, 0] == had * SIZE
        had += 1
        if left > 0:
            break
    except KeyboardInterrupt:
        states.append((had, loader.state_dict()))
        batches = None
    moment += STEP
assert len(states) >= 5, len(states)
numbers = {had: set() for had, _ in states}
for had, state in states:
    numbers[had].add(state["antifreeze"]["planned"])
assert KIND == "stream" or all(planned == {had} for had, planned in numbers.items()), numbers
for had, state in states[:: max(1, len(states) // 6)]:
    assert first_after(state) == had * SIZE, (had, first_after(state))
print("OK")
"""


@pytest.mark.parametrize(
    "cases",
    [
        ("0 map saving 1", "0 map raising 1", "0 stream raising 3"),
        ("2 map saving 5", "2 map raising 31", "2 stream saving 9"),
    ],
    ids=["without workers", "with workers"],
)
def test_a_state_at_any_moment_is_of_the_batches_that_the_user_has(
    run_script: Callable[..., Ended], cases: tuple[str, ...]
) -> None:
    """None is left out by the program that goes on, and none comes twice."""
    assert run_script(MOMENTS, *cases).check().stdout == "OK\n" * len(cases)
