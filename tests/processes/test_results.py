"""What a worker sends back arrives, whatever its size, or is an error that says what could not be sent."""

import re
from pathlib import Path

import pytest

from drop_in.harness import Way, our_way
from processes import datasets
from processes.datasets import LocalError, Loud, Numbers, Squares, Stuck, Unsendable, assert_ended


@pytest.mark.long(but=2)
@pytest.mark.usefixtures("not_for_torch")
@pytest.mark.parametrize("kind", ["lock", "generator", "frame"])
def test_a_result_that_cannot_be_pickled_is_an_error_that_names_it(way: Way, kind: str) -> None:
    batches = iter(way.make(Unsendable(kind), collate_fn=datasets.as_is))
    seen = [next(batches)[0]["index"] for _ in range(3)]
    with pytest.raises(Exception, match=kind) as caught:
        next(batches)
    assert seen == [0, 1, 2]
    assert re.search(r"\['?parts'?\]\[1\]\['?reader'?\]", str(caught.value)), str(caught.value)
    assert [batch[0]["index"] for batch in batches] == [4, 5, 6, 7]


@pytest.mark.usefixtures("not_for_torch")
def test_an_error_of_a_class_without_a_name_arrives_with_its_text(way: Way) -> None:
    batches = iter(way.make(LocalError(4)))
    with pytest.raises(Exception, match="cannot decode sample 0") as caught:
        next(batches)
    assert "DecodeError in DataLoader worker process 0" in str(caught.value)


def test_a_megabyte_of_error_text_arrives_whole(way: Way) -> None:
    batches = iter(way.make(Loud(4)))
    for index in range(4):
        with pytest.raises(ValueError, match="Caught ValueError") as caught:
            next(batches)
        assert str(caught.value).rstrip().endswith("x" * 1_000_000 + f" at {index}")


def test_forty_thousand_indices_fit_into_a_batch(way: Way) -> None:
    loader = way.make(range(50_000), batch_sampler=Squares(6, 40_960), collate_fn=datasets.count_and_sum)
    expected = [(40_960, sum(range(number, number + 40_960))) for number in range(6)]
    assert list(loader) == expected


@pytest.mark.usefixtures("not_for_torch")
def test_the_trainer_never_waits_for_a_worker_that_does_not_read(tmp_path: Path) -> None:
    """Both workers are stopped, and there is more to send than any pipe holds."""
    dataset = Stuck(tmp_path, datasets.be_stopped, length=50_000)
    options = {"batch_sampler": Squares(40, 40_960), "prefetch_factor": 20}
    batches = iter(our_way("grown").make(dataset, **options))
    processes = dataset.wait_stuck(2)
    del batches
    assert_ended(processes)


def test_a_batch_of_many_small_objects_arrives(way: Way) -> None:
    batches = list(way.make(Numbers(60_000), batch_size=30_000, collate_fn=datasets.as_is))
    assert [len(batch) for batch in batches] == [30_000, 30_000]
    assert batches[1][-1] == 59_999


def test_samples_that_cannot_be_collated_are_told_as_torch_tells_them(way: Way) -> None:
    with pytest.raises(TypeError, match="default_collate: batch must contain tensors"):
        list(way.make([None, None], batch_size=2))
