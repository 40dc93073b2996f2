"""A bench makes a worker of the process that it is in: these tests give the process back as it was."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import worker as torch_worker


@pytest.fixture(autouse=True)
def _no_worker_afterwards() -> Iterator[None]:
    table, asked = dict(torch_collate.default_collate_fn_map), torch_worker.get_worker_info
    code = asked.__code__
    threads, states = torch.get_num_threads(), (random.getstate(), np.random.get_state(), torch.get_rng_state())
    yield
    torch_collate.default_collate_fn_map.clear()
    torch_collate.default_collate_fn_map.update(table)
    asked.__code__ = code
    torch_worker._worker_info = None
    torch.set_num_threads(threads)
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
