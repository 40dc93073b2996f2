"""Samples that fail, under every policy, in a real workbench."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, Subset, default_convert
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import worker as torch_worker

from antifreeze.engine.arena.board import Board, Step
from antifreeze.engine.numbers import TicketNo
from antifreeze.engine.wire.messages import Emptied, Failed, Filled, Work
from antifreeze.engine.worker import bench as worker_bench
from antifreeze.engine.worker import lenient
from antifreeze.policy import Policy
from worker.benches import Bench, draw, kinds

SKIP, REPLACE = Policy("skip"), Policy("replace")
RETRY = Policy("raise", 3)


class Broken(OSError):
    """What the datasets here raise."""


class Flaky:
    """Random augmentation of every kind; what `faults` says fails that often, in the middle of its draws."""

    def __init__(self, faults: dict[int, int] | None = None, *, error: type[Exception] = Broken) -> None:
        self.faults = Counter(faults or {})
        self.error = error
        self.own = np.random.default_rng(5)
        self.fetched: list[int] = []

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> list[float]:
        self.fetched.append(index)
        first = draw()
        if self.faults[index] > 0:
            self.faults[index] -= 1
            raise self.error(f"sample {index}")
        return [float(index), *first, *draw(), self.own.random()]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    """Makes workbenches, without making a worker of this process for longer than the test takes."""
    monkeypatch.setattr(torch_worker, "_worker_info", None)
    monkeypatch.setattr(torch.multiprocessing, "_set_thread_name", lambda name: None)
    monkeypatch.setattr(torch_collate, "default_collate_fn_map", dict(torch_collate.default_collate_fn_map))
    monkeypatch.setattr(lenient.time, "sleep", lambda seconds: None)
    threads = torch.get_num_threads()
    benches: list[Bench] = []

    def make_one(*arguments: Any, **more: Any) -> Bench:
        benches.append(Bench(*arguments, **more))
        return benches[-1]

    yield make_one
    for bench in benches:
        bench.close()
    torch.set_num_threads(threads)


TICKETS = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [12, 13, 14]]


def epoch(bench: Bench) -> list[Any]:
    return [torch.stack(bench.batch(index)).tolist() for index in TICKETS]


def calm(make: Callable[..., Bench]) -> list[Any]:
    return epoch(make(Flaky()))


# --- retry


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    faults=st.dictionaries(st.integers(0, 14), st.integers(1, 3), max_size=8),
    snapshot_s=st.sampled_from([0.0, 3600.0]),
)
def test_failures_that_pass_leave_no_trace_in_any_batch(
    make: Callable[..., Bench], faults: dict[int, int], snapshot_s: float
) -> None:
    expected = calm(make)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_bench, "SNAPSHOT_S", snapshot_s)
        assert epoch(make(Flaky(faults), RETRY)) == expected


def test_a_failure_that_comes_back_in_a_replay_is_retried_there_too(make: Callable[..., Bench]) -> None:
    expected = calm(make)

    class Relapsing(Flaky):
        """Sample 4 fails in its own ticket, and once more when the failure of sample 7 brings it back."""

        def __getitem__(self, index: int) -> list[float]:
            if index == 7 and not self.fetched.count(7):
                self.faults[4] += 1
            return super().__getitem__(index)

    dataset = Relapsing({4: 1, 7: 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_bench, "SNAPSHOT_S", 3600.0)
        assert epoch(make(dataset, RETRY)) == expected
    assert dataset.fetched.count(4) > 2


class MadeAtFirstUse(Flaky):
    """Its generator is made by the first sample, which fails."""

    def __init__(self, faults: dict[int, int] | None = None) -> None:
        super().__init__(faults)
        self.own = None  # type: ignore[assignment]

    def __getitem__(self, index: int) -> list[float]:
        if self.own is None:
            self.own = np.random.default_rng(5)
        self.own.random()
        return super().__getitem__(index)


@pytest.mark.parametrize("failing", [0, 2])
def test_a_generator_that_a_failing_sample_has_made_begins_anew(make: Callable[..., Bench], failing: int) -> None:
    expected = epoch(make(MadeAtFirstUse(), policy=RETRY))
    assert epoch(make(MadeAtFirstUse({failing: 1}), policy=RETRY)) == expected


class SeededOnce(Flaky):
    """Seeds generators at its first sample, as datasets do that give each worker seeds of its own."""

    is_seeded = False

    def __getitem__(self, index: int) -> list[float]:
        if not self.is_seeded:
            self.is_seeded = True
            np.random.seed(17)
            self.own = np.random.default_rng(18)
        return super().__getitem__(index)


@pytest.mark.parametrize("failing", [1, 2, 3, 5, 9])
def test_what_is_seeded_at_the_first_sample_stays_so_when_others_are_retried(
    make: Callable[..., Bench], failing: int
) -> None:
    expected = epoch(make(SeededOnce()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_bench, "SNAPSHOT_S", 3600.0)
        assert epoch(make(SeededOnce({failing: 2}), RETRY)) == expected


class ChangesItsData(Flaky):
    """Gives samples in memory of its own, changed in place: right as long as each is fetched once."""

    def __init__(self, faults: dict[int, int] | None = None) -> None:
        super().__init__(faults)
        self.images = [np.full(2, float(index)) for index in range(15)]

    def __getitem__(self, index: int) -> Any:
        drawn = super().__getitem__(index)
        image = self.images[index]
        image += 10
        return {"image": (torch.from_numpy(image), image), "drawn": drawn}


@pytest.mark.parametrize("failing", [5, 8, 10])
def test_samples_of_a_batch_do_not_change_while_another_one_is_fetched_again(
    make: Callable[..., Bench], failing: int
) -> None:
    def shown(bench: Bench) -> list[str]:
        return [str(bench.batch(index)) for index in TICKETS]

    assert shown(make(ChangesItsData({failing: 1}), RETRY)) == shown(make(ChangesItsData()))


class Labelled(torch.Tensor):
    """Has attributes, as tensors of medical imaging and of torchvision have."""

    label: int


class OfKinds(Flaky):
    """Gives tensors that are more than their numbers."""

    def __getitem__(self, index: int) -> Any:
        drawn = torch.tensor(super().__getitem__(index))
        labelled = drawn.as_subclass(Labelled)
        labelled.label = index
        return labelled, torch.nn.Parameter(drawn), drawn.clone().requires_grad_(), drawn.clone().requires_grad_() * 2


def test_samples_of_a_batch_stay_what_they_are_while_another_one_is_fetched_again(make: Callable[..., Bench]) -> None:
    def shown(samples: list[Any]) -> list[Any]:
        return [
            [(type(part), vars(part), part.is_leaf, part.requires_grad, part.tolist()) for part in sample]
            for sample in samples
        ]

    def shown_of(bench: Bench) -> list[Any]:
        return [bench.batch(index) for index in TICKETS]

    assert shown_of(make(OfKinds({8: 1}), RETRY, collate_fn=shown)) == shown_of(make(OfKinds(), collate_fn=shown))


@pytest.mark.parametrize("policy", [RETRY, Policy("skip", 1), SKIP, REPLACE], ids=str)
def test_another_worker_that_replays_goes_on_where_this_one_would_have(
    make: Callable[..., Bench], policy: Policy
) -> None:
    faults = {4: 99, 7: 99} if policy.then != "raise" else {4: 2, 7: 1}
    lost = make(Flaky(faults), policy, collate_fn=list)
    expected = [lost.batch(index) for index in TICKETS]
    heir = make(Flaky(faults), policy, collate_fn=list)
    for number, index in enumerate(TICKETS[:3]):
        heir.bench.replay(Work(TicketNo(number), index, None, 0, (), is_replay=True))
    heir.skip_to(3)
    answers = [heir.do(index) for index in TICKETS[3:]]
    assert [heir.open(answer) for answer in answers] == expected[3:]
    assert not any(answer.mishaps for answer in answers), "what happened in replays was told at the time"


def test_every_attempt_that_failed_is_told(make: Callable[..., Bench]) -> None:
    answer = make(Flaky({4: 2}), RETRY).do([3, 4, 5])
    assert kinds(answer) == [("retried", 1, "4", 1), ("retried", 1, "4", 2)]
    assert answer.mishaps[0].exception == "Broken: sample 4"
    assert "__getitem__" in answer.mishaps[0].traceback
    assert not answer.mishaps[0].remark


def test_a_single_sample_that_is_fetched_again_is_told_without_a_remark(make: Callable[..., Bench]) -> None:
    bench = make(Flaky({1: 1}), RETRY, batched=False, collate_fn=default_convert)
    assert isinstance(bench.do(0), Filled)
    answer = bench.do(1)
    assert kinds(answer) == [("retried", 0, "1", 1)]
    assert not answer.mishaps[0].remark


def test_a_sample_that_fails_every_time_is_raised_with_its_position_and_attempts(make: Callable[..., Bench]) -> None:
    bench = make(Flaky({4: 99}), RETRY)
    answer = bench.do([3, 4, 5])
    assert isinstance(answer, Failed) and answer.position == 1
    assert len(answer.mishaps) == 3
    with pytest.raises(Broken, match="this was attempt 4 at sample 4"):
        bench.open(answer)


def test_after_an_error_generators_are_where_a_calm_failure_leaves_them(make: Callable[..., Bench]) -> None:
    plain = make(Flaky({4: 1}))
    assert isinstance(plain.do([3, 4, 5]), Failed)
    expected = torch.stack(plain.batch([6])).tolist()
    patient = make(Flaky({4: 99}), RETRY)
    assert isinstance(patient.do([3, 4, 5]), Failed)
    assert torch.stack(patient.batch([6])).tolist() == expected


def test_waits_double_and_the_pulse_says_that_nothing_is_fetched(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[float, int]] = []
    bench = make(Flaky({4: 3}), Policy("raise", 3, 0.1))
    monkeypatch.setattr(lenient.time, "sleep", lambda seconds: seen.append((seconds, bench.board.pulse[0])))
    assert isinstance(bench.do([3, 4, 5]), Filled)
    assert seen == [(pytest.approx(0.1), Step.IDLE), (pytest.approx(0.2), Step.IDLE), (pytest.approx(0.4), Step.IDLE)]


def test_the_pulse_tells_the_truth_while_generators_are_brought_back(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_bench, "SNAPSHOT_S", 3600.0)
    seen: list[tuple[int, tuple[int, int, int]]] = []
    boards: list[Board] = []

    class Watched(Flaky):
        def __getitem__(self, index: int) -> list[float]:
            pulse = boards[0].read_pulse()
            seen.append((index, (pulse.step, pulse.ticket or 0, pulse.position)))
            return super().__getitem__(index)

    bench = make(Watched({3: 1}), RETRY)
    boards.append(bench.board)
    bench.do([9])  # nothing leads back to the first ticket
    seen.clear()
    bench.do([0, 1])
    bench.do([2, 3])
    where = {0: (1, 0), 1: (1, 1), 2: (2, 0), 3: (2, 1)}
    assert [index for index, _ in seen] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert all(pulse == (Step.FETCHING, *where[index]) for index, pulse in seen)


def test_without_a_state_to_go_back_to_it_is_retried_all_the_same_and_that_is_told(make: Callable[..., Bench]) -> None:
    class Unknowable(np.random.RandomState):
        def get_state(self, legacy: bool = True) -> Any:
            raise TypeError("no state")

    dataset = Flaky({4: 1})
    dataset.own = Unknowable(5)  # type: ignore[assignment]
    dataset.own.random = dataset.own.rand  # type: ignore[method-assign, assignment]
    answer = make(dataset, RETRY).do([3, 4, 5])
    assert isinstance(answer, Filled)
    assert [mishap.remark for mishap in answer.mishaps] == [lenient.NOT_REWOUND]


# --- StopIteration


@pytest.mark.parametrize("policy", [Policy(), SKIP, RETRY])
def test_stop_iteration_is_redone_once_whatever_the_policy(make: Callable[..., Bench], policy: Policy) -> None:
    expected = calm(make)
    bench = make(Flaky({4: 1, 7: 1}, error=StopIteration), policy)
    answers = [bench.do(index) for index in TICKETS]
    assert [torch.stack(bench.open(answer)).tolist() for answer in answers] == expected
    kind = "retried" if policy.retries else "redone"
    assert [kinds(answer) for answer in answers] == [[], [(kind, 1, "4", 1)], [(kind, 1, "7", 1)], [], []]


def test_stop_iteration_again_is_raised_with_its_position(make: Callable[..., Bench]) -> None:
    bench = make(Flaky({4: 2}, error=StopIteration))
    answer = bench.do([3, 4, 5])
    assert isinstance(answer, Failed) and answer.position == 1
    assert kinds(answer) == [("redone", 1, "4", 1)]
    with pytest.raises(StopIteration):
        bench.open(answer)


def test_stop_iteration_of_the_collate_function_is_not_redone(make: Callable[..., Bench]) -> None:
    calls = []

    def stop(samples: Any) -> Any:
        calls.append(samples)
        raise StopIteration

    answer = make(Flaky(), collate_fn=stop).do([1])
    assert isinstance(answer, Failed) and answer.position == -1 and not answer.mishaps
    assert len(calls) == 1


# --- raise: nothing is forgiven that nobody asked to be


def test_without_a_policy_an_exception_is_raised_at_once_with_its_position(make: Callable[..., Bench]) -> None:
    dataset = Flaky({4: 1})
    answer = make(dataset).do([3, 4, 5])
    assert isinstance(answer, Failed) and answer.position == 1 and not answer.mishaps
    assert dataset.fetched == [3, 4]


@pytest.mark.parametrize("policy", [SKIP, REPLACE, RETRY])
def test_errors_of_the_collate_function_are_always_raised(make: Callable[..., Bench], policy: Policy) -> None:
    def broken(samples: Any) -> Any:
        raise Broken("collate")

    answer = make(Flaky(), policy, collate_fn=broken).do([1, 2])
    assert isinstance(answer, Failed) and answer.position == -1 and not answer.mishaps


# --- skip


def test_a_skipped_sample_makes_the_batch_smaller(make: Callable[..., Bench]) -> None:
    bench = make(Flaky({4: 99, 5: 99}), SKIP, collate_fn=list)
    answer = bench.do([3, 4, 5, 6])
    assert [sample[0] for sample in bench.open(answer)] == [3, 6]
    assert kinds(answer) == [("skipped", 1, "4", 1), ("skipped", 2, "5", 1)]


def test_a_batch_of_which_nothing_is_left_is_told_as_lost(make: Callable[..., Bench]) -> None:
    bench = make(Flaky({4: 99, 5: 99}), SKIP)
    answer = bench.do([4, 5])
    assert isinstance(answer, Emptied)
    assert [mishap.is_loss for mishap in answer.mishaps] == [True, True]
    assert isinstance(bench.do([6]), Filled)


def test_an_empty_index_is_the_collate_functions_business(make: Callable[..., Bench]) -> None:
    bench = make(Flaky(), SKIP, collate_fn=list)
    assert bench.batch([]) == []


def test_retry_comes_before_skip(make: Callable[..., Bench]) -> None:
    answer = make(Flaky({4: 99}), Policy("skip", 2)).do([3, 4])
    assert kinds(answer) == [("retried", 1, "4", 1), ("retried", 1, "4", 2), ("skipped", 1, "4", 3)]


def test_a_single_sample_can_be_a_batch(make: Callable[..., Bench]) -> None:
    bench = make(Flaky({4: 99, 5: 1}), Policy("skip", 1), batched=False, collate_fn=default_convert)
    assert isinstance(bench.do(4), Emptied)
    answer = bench.do(5)
    assert kinds(answer) == [("retried", 0, "5", 1)]
    assert bench.open(answer)[0] == 5


# --- replace


def test_the_same_replacement_is_drawn_on_every_run_and_by_seed(make: Callable[..., Bench]) -> None:
    def chosen(seed: int) -> list[float]:
        bench = make(Flaky({4: 99}), REPLACE, collate_fn=list, seed=seed)
        return [sample[0] for index in ([3, 4, 5], [4, 4, 6]) for sample in bench.batch(index)]

    first = chosen(1)
    assert first == chosen(1) != chosen(2)
    assert first[0] == 3 and first[2] == 5 and first[5] == 6
    assert 4 not in first


def test_the_replacement_does_not_depend_on_what_was_made_before(make: Callable[..., Bench]) -> None:
    """As after a resume, where the first ticket is for a later batch."""

    def chosen(*before: list[int]) -> list[float]:
        bench = make(Flaky({4: 99}), REPLACE, collate_fn=list)
        for index in before:
            bench.do(index)
        return [sample[0] for sample in bench.batch([3, 4, 5])]

    assert chosen() == chosen([0], [1, 2])


def test_the_draw_of_a_replacement_leaves_the_users_generators_alone(make: Callable[..., Bench]) -> None:
    class Silent(Flaky):
        def __getitem__(self, index: int) -> list[float]:
            if index == 4:
                raise Broken
            return [float(index), *(draw() if index == 50 else [])]

    def after(index: list[int]) -> Any:
        bench = make(Silent(), REPLACE, collate_fn=list)  # seeds the global generators
        bench.do(index)
        return bench.batch([50])

    assert after([4]) == after([3])


def test_a_replacement_is_told_with_its_index(make: Callable[..., Bench]) -> None:
    bench = make(Flaky({4: 99}), REPLACE, collate_fn=list)
    answer = bench.do([3, 4])
    other = int(bench.open(answer)[1][0])
    assert kinds(answer) == [("replaced", 1, "4", 1)]
    assert f"sample {other} is in its place" in answer.mishaps[0].remark


def test_when_nothing_can_be_had_the_last_error_is_raised(make: Callable[..., Bench]) -> None:
    dataset = Flaky(dict.fromkeys(range(100), 99))
    bench = make(dataset, REPLACE)
    answer = bench.do([4])
    assert isinstance(answer, Failed) and answer.position == 0
    assert len(dataset.fetched) <= 1 + lenient.MOST_DRAWS
    with pytest.raises(Broken, match="in place of sample 4"):
        bench.open(answer)


def test_a_key_cannot_be_replaced(make: Callable[..., Bench]) -> None:
    bench = make({"a": 1}, REPLACE)
    with pytest.raises(KeyError, match="in place of sample 'b'"):
        bench.batch(["a", "b"])


# --- quarantine


def test_what_is_in_quarantine_is_not_fetched(make: Callable[..., Bench]) -> None:
    dataset = Flaky()
    bench = make(dataset, SKIP, collate_fn=list)
    answer = bench.do([3, 4, 5], leave_out=(1,))
    assert [sample[0] for sample in bench.open(answer)] == [3, 5]
    assert kinds(answer) == [("skipped", 1, "4", 0)]
    assert dataset.fetched == [3, 5]
    assert isinstance(bench.do([4], leave_out=(0,)), Emptied)


def test_what_is_in_quarantine_is_replaced_by_something_that_is_not(make: Callable[..., Bench]) -> None:
    class Three(Flaky):
        def __len__(self) -> int:
            return 3

    dataset = Three()
    bench = make(dataset, REPLACE, collate_fn=list)
    for _ in range(20):
        batch = bench.batch([0, 1], leave_out=(0, 1), quarantined=(0, 1))
        assert [sample[0] for sample in batch] == [2, 2]
    assert set(dataset.fetched) == {2}


def test_what_another_batch_has_put_into_quarantine_is_never_drawn(make: Callable[..., Bench]) -> None:
    deadly = tuple(range(10, 90))
    dataset = Flaky({3: 50})
    for seed in range(50):
        make(dataset, REPLACE, collate_fn=list, seed=seed).do([3], quarantined=deadly)
    assert len(set(dataset.fetched)) > 10
    assert not set(dataset.fetched) & set(deadly)


def test_a_replay_leaves_out_what_was_left_out(make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_bench, "SNAPSHOT_S", 3600.0)
    dataset = Flaky({7: 1})
    bench = make(dataset, Policy("skip", 1), collate_fn=list)
    bench.do([9])  # nothing leads back to the first ticket
    bench.do([3, 4], leave_out=(1,))
    bench.do([7])
    assert dataset.fetched == [9, 3, 7, 3, 7]


# --- __getitems__


class AtOnce(Flaky):
    """Fetches whole batches, and fails as a whole."""

    def __getitems__(self, indices: list[int]) -> list[list[float]]:
        return [Flaky.__getitem__(self, index) for index in indices]


class UsesUp(Dataset[Any]):
    """Empties the list that it is given; one sample fails at first."""

    def __init__(self, failing: int) -> None:
        self.failing = failing

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__(index) if isinstance(index, list) else self._one(index)

    def __getitems__(self, indices: list[int]) -> list[int]:
        samples = []
        while indices:
            samples.append(self._one(indices.pop(0)))
        return samples

    def _one(self, index: int) -> int:
        if index == self.failing:
            self.failing = -1
            raise Broken
        return index


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(("policy", "failing"), [(RETRY, 4), (SKIP, 4), (Policy(), -1)])
def test_indices_that_user_code_uses_up_are_there_when_they_are_asked_for_again(
    make: Callable[..., Bench], policy: Policy, failing: int, batched: bool
) -> None:
    if policy is SKIP and not batched:
        return  # then all of them are skipped
    bench = make(UsesUp(failing), policy, batched=batched, collate_fn=list)
    index = [3, 4, 5]
    assert bench.batch(index) == [3, 4, 5]
    assert index == [3, 4, 5]


class OnlyAtOnce(Dataset[Any]):
    """Inherits a `__getitem__` that only says that there is none."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        if 4 in indices:
            raise Broken
        return [10 * index for index in indices]


def test_a_batch_fetched_at_once_is_retried_at_once(make: Callable[..., Bench]) -> None:
    expected = epoch(make(AtOnce()))
    bench = make(AtOnce({4: 2, 13: 1}), RETRY)
    answers = [bench.do(index) for index in TICKETS]
    assert [torch.stack(bench.open(answer)).tolist() for answer in answers] == expected
    assert kinds(answers[1]) == [("retried", -1, "[3, 4, 5]", 1), ("retried", -1, "[3, 4, 5]", 2)]


def test_several_failures_that_pass_leave_no_trace_in_a_batch_fetched_at_once(make: Callable[..., Bench]) -> None:
    expected = epoch(make(AtOnce()))
    assert epoch(make(AtOnce({3: 1, 5: 1, 12: 1, 13: 1}), Policy("raise", 1))) == expected


def test_a_batch_that_cannot_be_fetched_at_once_is_fetched_one_by_one(make: Callable[..., Bench]) -> None:
    bench = make(AtOnce({4: 99}), SKIP, collate_fn=list)
    answer = bench.do([3, 4, 5])
    assert [sample[0] for sample in bench.open(answer)] == [3, 5]
    assert kinds(answer) == [("skipped", 1, "4", 1)]


def test_a_batch_that_fails_at_once_and_not_one_by_one_is_there_after_all(make: Callable[..., Bench]) -> None:
    class Unable(Flaky):
        def __getitems__(self, indices: list[int]) -> Any:
            raise Broken("all of them")

    answer = make(Unable(), Policy("raise", 1)).do([3, 4])
    assert isinstance(answer, Filled)
    assert kinds(answer) == [("retried", -1, "[3, 4]", 1)]


def test_a_dataset_that_has_no_other_way_raises_what_it_raised(make: Callable[..., Bench]) -> None:
    bench = make(OnlyAtOnce(), Policy("raise", 1))
    answer = bench.do([3, 4])
    assert isinstance(answer, Failed) and answer.position == -1
    with pytest.raises(Broken, match="attempt 2"):
        bench.open(answer)


def test_samples_of_a_subset_fail_one_by_one(make: Callable[..., Bench]) -> None:
    expected = epoch(make(Subset(Flaky(), range(100))))
    faults = {3: 1, 4: 2, 5: 3, 10: 1}  # more than a batch as a whole would be forgiven
    assert epoch(make(Subset(Flaky(faults), range(100)), RETRY)) == expected


def test_a_dataset_that_has_no_other_way_is_asked_for_batches_of_one(make: Callable[..., Bench]) -> None:
    assert make(OnlyAtOnce(), SKIP).batch([3, 4, 5]).tolist() == [30, 50]


def test_quarantine_and_none_in_a_batch_fetched_at_once(make: Callable[..., Bench]) -> None:
    class Holes(AtOnce):
        def __getitems__(self, indices: list[int]) -> Any:
            return [None if index == 5 else index for index in indices]

    bench = make(Holes(), SKIP)
    answer = bench.do([3, 4, 5, 6], leave_out=(1,))
    assert bench.open(answer).tolist() == [3, 6]
    assert kinds(answer) == [("skipped", 1, "4", 0), ("skipped", 2, "5", 1)]


def test_what_a_dataset_gives_at_once_reaches_the_collate_function_as_it_is(make: Callable[..., Bench]) -> None:
    class Columns(AtOnce):
        def __getitems__(self, indices: list[int]) -> Any:
            return {"index": indices}

    assert make(Columns(), SKIP, collate_fn=lambda columns: columns["index"]).batch([1, 2]) == [1, 2]


# --- None


class Swallowing(Flaky):
    """Catches its own errors."""

    def __getitem__(self, index: int) -> Any:
        try:
            return super().__getitem__(index)
        except Broken:
            return None


def test_none_is_skipped_replaced_and_retried_like_any_failure(make: Callable[..., Bench]) -> None:
    bench = make(Swallowing({4: 99}), SKIP)
    answer = bench.do([3, 4, 5])
    assert torch.stack(bench.open(answer))[0].tolist() == [3, 5]
    assert kinds(answer) == [("skipped", 1, "4", 1)]
    assert "returned None" in answer.mishaps[0].exception
    assert len(make(Swallowing({4: 99}), REPLACE).batch([3, 4, 5])[0]) == 3
    assert epoch(make(Swallowing({4: 2}), RETRY)) == calm(make)


@pytest.mark.parametrize("policy", [Policy(), SKIP])
def test_none_passes_with_a_collate_function_of_the_users_own(make: Callable[..., Bench], policy: Policy) -> None:
    bench = make(Swallowing({4: 99}), policy, collate_fn=list)
    assert bench.batch([4]) == [None]


@pytest.mark.parametrize("policy", [Policy(), Policy("raise", 1)])
def test_of_a_none_that_is_raised_the_swallowed_exception_is_named(make: Callable[..., Bench], policy: Policy) -> None:
    bench = make(Swallowing({4: 99}), policy)
    answer = bench.do([3, 4, 5])
    assert isinstance(answer, Failed) and answer.position == 1
    assert kinds(answer)[-1][:3] == ("none", 1, "4")
    with pytest.raises(TypeError) as caught:
        bench.open(answer)
    said = str(caught.value)
    assert "None for 1 of 3 samples of this batch: index 4." in said
    assert "`Broken` (sample 4) at test_lenient.py:" in said and "caught at test_lenient.py:" in said


def test_a_none_that_does_not_recur_is_called_that_and_the_generators_go_on_as_ever(make: Callable[..., Bench]) -> None:
    def run(faults: dict[int, int], error: type[Exception]) -> tuple[str, list[float]]:
        bench = make(Swallowing(faults, error=error))
        answer = bench.do([3, 4, 5])
        with pytest.raises((TypeError, ValueError)) as caught:
            bench.open(answer)
        return str(caught.value), torch.stack(bench.batch([6])).tolist()

    once, after_once = run({4: 1}, Broken)
    always, after_always = run({4: 99}, Broken)
    assert "did not recur" in once
    assert "did not recur" not in always
    assert after_once == after_always
