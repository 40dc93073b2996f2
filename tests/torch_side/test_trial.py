"""What counts as a difference between our batches and torch's."""

from typing import Any

import pytest
import torch

from antifreeze.torch_side.trial import difference


@pytest.mark.parametrize(
    ("ours", "torchs", "words"),
    [
        ([1], (1,), "batches is a list, and torch's is a tuple"),
        ({"a": [1, 2]}, {"a": [1, 3]}, "batches['a'][1] is 2, and torch's is 3"),
        ({"a": 1}, {"b": 1}, "batches has the keys ['a'], and torch's ['b']"),
        ([1], [1, 2], "batches has 1 elements, and torch's 2"),
        ("one", "two", "batches is 'one', and torch's is 'two'"),
        (torch.ones(2), torch.zeros(2), "batches has other numbers than torch's"),
        (torch.ones(2), torch.ones(2).double(), "batches['dtype'] is 'torch.float32', and torch's is 'torch.float64'"),
        (torch.ones(2, 3), torch.ones(3, 2).t(), "batches['stride'] is '(3, 1)', and torch's is '(1, 2)'"),
        (
            torch.eye(2),
            torch.eye(2).to_sparse(),
            "batches['layout'] is 'torch.strided', and torch's is 'torch.sparse_coo'",
        ),
    ],
)
def test_a_difference_is_named_with_its_place(ours: Any, torchs: Any, words: str) -> None:
    assert difference(ours, torchs, "batches") == words


@pytest.mark.parametrize("batch", [[1, "text", b"bytes", None, {"a": (torch.ones(2), 0.5)}], torch.eye(3).to_sparse()])
def test_what_is_equal_differs_nowhere(batch: Any) -> None:
    assert difference(batch, batch, "batches") is None
