"""Where the next worker comes from."""

from types import SimpleNamespace
from typing import Any

from antifreeze.engine.pool.stems import Stems


def handle(name: str) -> Any:
    ended: list[str] = []
    return SimpleNamespace(
        name=name,
        is_gone=False,
        ended=ended,
        stop=lambda *, deadline: ended.append("stopped"),
        close=lambda: ended.append("closed"),
    )


def test_workers_come_from_the_newest_stem_that_lives() -> None:
    first, second = handle("first"), handle("second")
    stems = Stems(lambda: first)
    stems.grow()
    assert stems.current is first
    stems.take(second)
    assert stems.current is second
    second.is_gone = True
    assert stems.current is first


def test_if_none_lives_it_is_the_last_whose_end_is_known() -> None:
    stems = Stems(lambda: handle("one"))
    for _ in range(2):
        stems.grow().is_gone = True
    assert stems.current is stems.all[-1]


def test_all_that_have_ever_been_are_ended() -> None:
    stems = Stems(lambda: handle("one"))
    stems.grow().is_gone = True
    stems.grow()
    stems.stop(grace_s=0.0)
    stems.close()
    assert [stem.ended for stem in stems.all] == [["stopped", "closed"]] * 2  # type: ignore[attr-defined]
