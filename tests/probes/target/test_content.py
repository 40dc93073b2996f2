"""What is compared of samples, and which sample of a batch is the odd one."""

from typing import Any

import numpy as np
import pytest
import torch

from antifreeze.probes.target.content import content_of, odd_one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (np.arange(4), np.arange(1, 5)),
        ({"a": 1}, {"b": 1}),
        ((1, "x"), (1, "y")),
        (b"1", b"2"),
        (None, 0),
    ],
)
def test_samples_that_differ_have_another_content(one: Any, other: Any) -> None:
    assert content_of(one).digest == content_of(one).digest is not None
    assert content_of(one).digest != content_of(other).digest


def test_what_cannot_be_compared_has_none() -> None:
    assert content_of((1, object())).digest is None
    assert content_of(np.array([object()])).digest is None


@pytest.mark.parametrize(
    "sample",
    [
        float("nan"),
        {"x": torch.tensor([1.0, float("inf")])},
        [np.array([1.0, np.nan])],
        (torch.tensor(float("nan")), object()),
    ],
)
def test_numbers_that_are_not_finite_are_seen(sample: Any) -> None:
    assert not content_of(sample).is_finite


def test_finite_numbers_are_not_suspected() -> None:
    assert content_of(
        (1, 2.0, torch.ones(3), np.zeros(2), torch.empty(0), torch.ones(2, dtype=torch.bfloat16))
    ).is_finite


def test_the_sample_that_lacks_a_key_is_the_odd_one() -> None:
    samples: list[Any] = [{"id": 0, "boxes": 1}, {"id": 1, "boxes": 1}, {"id": 2}]
    assert odd_one(samples) == (2, "['boxes'] is missing")
    assert odd_one(samples[1:]) == (1, "['boxes'] is missing")


def test_the_sample_of_another_shape_is_the_odd_one() -> None:
    samples = [(torch.zeros(3, 4), 1), (torch.zeros(3, 5), 1), (torch.zeros(3, 4), 1)]
    assert odd_one(samples) == (1, "[0] is of shape (3, 5), the others of shape (3, 4)")


def test_among_samples_that_are_all_alike_or_all_different_none_is_odd() -> None:
    assert odd_one([torch.zeros(2)] * 3) is None
    assert odd_one([torch.zeros(1), torch.zeros(2), torch.zeros(3)]) is None
    assert odd_one([torch.zeros(1)]) is None
