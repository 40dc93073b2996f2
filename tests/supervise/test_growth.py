"""When a worker has copied enough: made-up memory at made-up times."""

import pytest

from antifreeze.engine.supervise.growth import FLOOR_BYTES, LIVES, MOST_PAUSE_S, PAUSES, SHARE, Growth, is_short
from antifreeze.machine import Memory

MB = 1 << 20
TOOK_S = 0.003


def looked_at(
    copied_mb: list[float], *, inherited_mb: float = 100, own_mb: list[float] | None = None, birth_s: float = 0.0
) -> list[bool]:
    """The verdicts, one a second, of a worker that had copied so much at each."""
    growth = Growth(now=0.0, birth_s=birth_s)
    return [
        growth.note(
            Memory(int(inherited_mb * MB), int(copied * MB), int((own_mb[second] if own_mb else 7) * MB)),
            now=float(second),
            took_s=TOOK_S,
        )
        for second, copied in enumerate(copied_mb)
    ]


def test_a_worker_that_copies_on_and_on_is_renewed_before_it_would_pass_the_limit() -> None:
    assert looked_at([8, 11, 14, 17]) == [False, False, False, True]


def test_what_was_copied_before_the_first_look_is_not_counted() -> None:
    assert not any(looked_at([80, 81, 82, 83, 84]))


def test_of_a_large_stem_more_may_be_copied() -> None:
    inherited_mb = 10 * FLOOR_BYTES / SHARE / MB  # of which the share is ten times the floor
    assert looked_at([0, 30, 60, 80], inherited_mb=inherited_mb) == [False, False, False, True]
    assert not any(looked_at([0, 15, 30, 45, 60], inherited_mb=inherited_mb))


def test_copying_that_has_come_to_an_end_is_no_reason() -> None:
    assert not any(looked_at([8, 40, 41, 41, 41, 41]))


def test_two_looks_are_not_enough_to_know_that_it_goes_on() -> None:
    assert looked_at([0, 50]) == [False, False]


def test_slow_copying_is_a_reason_in_the_end() -> None:
    verdicts = looked_at([second * 0.1 for second in range(110)])
    assert verdicts.index(True) in range(95, 101)


def test_a_worker_that_keeps_more_than_it_copies_stays() -> None:
    copied = [0.0, 5, 10, 15, 20]
    assert not any(looked_at(copied, own_mb=[7, 20, 40, 60, 80]))
    assert any(looked_at(copied, own_mb=[7, 8, 9, 10, 11]))


def test_a_worker_whose_birth_took_long_lives_long() -> None:
    copied = [10.0 * second for second in range(100)]
    assert looked_at(copied, birth_s=3.0).index(True) == 3 * LIVES


def test_a_look_is_followed_by_a_pause_that_is_much_longer() -> None:
    growth = Growth(now=100.0, birth_s=0.0)
    assert growth.next_look == 100.0
    growth.note(Memory(0, 0, 0), now=100.0, took_s=0.2)
    assert growth.next_look == pytest.approx(100.0 + PAUSES * 0.2)


def test_looks_that_show_nothing_become_rare_and_are_frequent_again_when_there_is_something() -> None:
    growth, now, pauses = Growth(now=0.0, birth_s=0.0), 0.0, []
    for copied in [0] * 12 + [5 * MB]:
        growth.note(Memory(100 * MB, copied, 0), now=now, took_s=TOOK_S)
        pauses.append(growth.next_look - now)
        now = growth.next_look
    least = PAUSES * TOOK_S
    assert pauses[:3] == pytest.approx([least, 2 * least, 4 * least])
    assert pauses[-2:] == pytest.approx([MOST_PAUSE_S, least])


def test_a_part_of_the_limit_must_have_been_faulted_in_before_a_look() -> None:
    growth = Growth(now=0.0, birth_s=0.0)
    assert growth.bytes_between_looks == FLOOR_BYTES // 8
    growth.note(Memory(1000 * MB, 0, 0), now=0.0, took_s=TOOK_S)
    assert growth.bytes_between_looks == pytest.approx(1000 * MB * SHARE / 4, abs=1)


def may_leak(own_mb: list[float], *, birth_s: float = 0.0) -> list[bool]:
    """What is thought of a worker that had so much memory of its own at looks one second apart."""
    growth, thought = Growth(now=0.0, birth_s=birth_s), []
    for second, own in enumerate(own_mb):
        growth.note(Memory(100 * MB, 0, int(own * MB)), now=float(second), took_s=TOOK_S)
        thought.append(growth.may_leak)
    return thought


def test_a_worker_that_grows_and_grows_may_leak() -> None:
    assert may_leak([50, 100, 150, 200]) == [False, False, False, True]


def test_a_cache_that_is_full_is_no_leak() -> None:
    assert not any(may_leak([50, 1000, 1010, 1010, 1010, 1011]))


def test_little_growth_is_no_leak() -> None:
    assert not any(may_leak([50 + second for second in range(100)]))


def test_a_worker_whose_birth_took_long_may_grow_for_long() -> None:
    assert may_leak([100.0 * second for second in range(100)], birth_s=2.0).index(True) == 2 * LIVES


def test_memory_is_short_when_less_than_an_eighth_is_left() -> None:
    assert is_short(available_bytes=7, total_bytes=64)
    assert not is_short(available_bytes=8, total_bytes=64)
    assert not is_short(available_bytes=0, total_bytes=None)
