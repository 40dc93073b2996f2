"""The numbers that the trainer adds up."""

import pickle
import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze.observe.ledger import Kind, Ledger
from antifreeze.observe.statistics import MOST_SLOW, SlowSample, Statistics, Tally


def test_a_loader_that_was_never_used_has_done_nothing() -> None:
    assert Tally().snapshot({}) == Statistics()


def test_waiting_is_what_passes_in_next() -> None:
    tally = Tally()
    tally.begin(100.0)
    for asked, given_ in ((100.0, 103.0), (106.0, 107.0)):
        tally.note_batch(asked, given_)
    tally.note_none(107.0, 108.0)
    found = tally.snapshot({})
    assert (found.batches, found.seconds, found.waiting_s, found.waiting_share) == (2, 8.0, 5.0, 0.625)


def test_the_clock_runs_from_the_first_iterator() -> None:
    tally = Tally()
    for moment in (10.0, 20.0):
        tally.begin(moment)
        tally.note_batch(moment, moment + 1)
    assert tally.snapshot({}).seconds == 11.0


def test_workers_are_added_up() -> None:
    tally = Tally()
    tally.merge_worker(1.0, 2.0, 3.0)
    tally.merge_worker(10.0, 20.0, 30.0, [SlowSample("7", 1.0, 0, 1)])
    found = tally.snapshot({})
    assert (found.fetch_s, found.collate_s, found.transfer_s) == (11.0, 22.0, 33.0)
    assert found.slowest == (SlowSample("7", 1.0, 0, 1),)


SLOW = st.builds(SlowSample, st.integers(0, 30).map(str), st.floats(0, 100), st.none() | st.integers(0, 9), st.just(0))


@settings(deadline=None)
@given(st.lists(st.lists(SLOW, max_size=15), max_size=8))
def test_the_ten_slowest_samples_are_kept_each_once_the_slowest_first(reports: list[list[SlowSample]]) -> None:
    tally = Tally()
    for slowest in reports:
        tally.merge_worker(0.0, 0.0, 0.0, slowest)
    longest: dict[str, float] = {}
    for slow in (slow for slowest in reports for slow in slowest):
        longest[slow.sample] = max(slow.seconds, longest.get(slow.sample, 0.0))
    found = tally.snapshot({}).slowest
    assert [slow.seconds for slow in found] == sorted(longest.values(), reverse=True)[:MOST_SLOW]
    assert all(longest[slow.sample] == slow.seconds for slow in found)
    assert len({slow.sample for slow in found}) == len(found)


def test_mishaps_come_from_the_ledger() -> None:
    ledger, tally = Ledger(), Tally()
    happened = {
        Kind.WORKER_REPLACED: 4,
        Kind.STALL: 3,
        Kind.HEDGE_STARTED: 2,
        Kind.SAMPLE_SKIPPED: 5,
        Kind.SAMPLE_REPLACED: 1,
        Kind.SAMPLE_QUARANTINED: 1,
        Kind.SAMPLE_RETRIED: 9,
    }
    for kind, count in happened.items():
        for _ in range(count):
            ledger.add(kind, "x")
    found = tally.snapshot(ledger.counts)
    assert (found.restarts, found.stalls, found.hedges, found.samples_lost) == (4, 3, 2, 6)


def test_statistics_can_be_read_by_people() -> None:
    slowest = (SlowSample("17", 0.93, 3, 0), SlowSample("'a'", 0.5, None, 1))
    found = Statistics(120, 3, 34.1, 1.4, 0.041, 100.2, 3.1, 0.4, slowest, restarts=2, stalls=1, hedges=1)
    assert str(found).splitlines() == [
        "120 batches in 34.1 s, 4% of it waiting for data",
        "workers  fetch 100.2 s, collate 3.1 s, transfer 0.4 s",
        "mishaps  1 stall, 1 hedge, 2 restarts, 3 lost samples",
        "slowest  0.93 s  sample 17 (batch 3, worker 0)",
        "         0.5 s  sample 'a' (worker 1)",
    ]
    assert "mishaps  none" in str(Statistics())
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("call", ["tally.note_batch(1.0, 2.0)"])
def test_a_wait_costs_next_to_nothing(call: str) -> None:
    runs = timeit.repeat(call, globals={"tally": Tally()}, number=2000, repeat=20)
    assert min(runs) / 2000 < 0.7e-6
