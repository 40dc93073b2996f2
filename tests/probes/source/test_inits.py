"""What a worker_init_fn seeds the workers from."""

import pytest

from antifreeze.doctor.facts import WorkerInit

from .conftest import HEAD, Read


def init(read: Read, body: str, *, given: str = "init", before: str = "") -> WorkerInit:
    text = f"{HEAD}import random, time, functools\n{before}\ndef init(worker_id):\n    {body}\n"
    text += f"DataLoader(ds, worker_init_fn={given})"
    (found,) = read(text).worker_inits
    return found


@pytest.mark.parametrize(
    "body",
    [
        "np.random.seed(worker_id)",
        "np.random.seed(42)",
        "random.seed(1000 + worker_id)",
        "seed = SEED + worker_id; np.random.seed(seed); random.seed(seed)",
        "info = torch.utils.data.get_worker_info(); torch.manual_seed(info.id)",
        "seed_all(worker_id)",
    ],
)
def test_seeds_of_the_worker_alone_are_fixed(read: Read, body: str) -> None:
    before = "SEED = 7\ndef seed_all(s):\n    random.seed(s)\n    np.random.seed(s)\n"
    assert init(read, body, before=before).is_fixed is True


@pytest.mark.parametrize(
    "body",
    [
        "np.random.seed(torch.initial_seed() % 2**32)",
        "seed = torch.initial_seed() % 2**32; np.random.seed(seed); random.seed(seed)",
        "np.random.seed((torch.initial_seed() + worker_id) % 2**32)",
        "info = torch.utils.data.get_worker_info(); np.random.seed(info.seed % 2**32)",
        "np.random.seed(np.random.get_state()[1][0] + worker_id)",
        "np.random.seed(int(time.time()) + worker_id)",
        "np.random.seed(worker_id + epoch)",
        "np.random.seed()",
        "random.seed(base_seed + worker_id)",
        "torch.set_num_threads(1)",
        "pass",
    ],
)
def test_seeds_that_change_are_not(read: Read, body: str) -> None:
    assert init(read, body).is_fixed is False


@pytest.mark.parametrize("body", ["np.random.seed(args.seed + worker_id)", "np.random.seed(seed)"])
def test_seeds_from_a_setting_cannot_be_told(read: Read, body: str) -> None:
    assert init(read, body).is_fixed is None


@pytest.mark.parametrize("given", ["lambda w: np.random.seed(w)", "functools.partial(init)"])
def test_lambdas_and_partials_are_seen_through(read: Read, given: str) -> None:
    found = init(read, "np.random.seed(worker_id)", given=given)
    assert found.is_fixed is True
    assert [place.line for place in found.used_by] == [10]
    assert len(found.seeds) == 1
