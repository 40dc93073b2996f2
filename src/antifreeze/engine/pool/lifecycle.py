"""A worker's life, as a table: pure."""

from __future__ import annotations

from enum import Enum, auto

from antifreeze.errors import InternalError


class Life(Enum):
    """Where a worker is in its life."""

    ASKED_FOR = auto()
    ALIVE = auto()
    LEAVING = auto()
    LOST = auto()
    GONE = auto()


class Event(Enum):
    """What can happen to a worker."""

    BIRTH = auto()
    STOP = auto()
    EXIT = auto()


MOVES: dict[tuple[Life, Event], Life] = {
    (Life.ASKED_FOR, Event.BIRTH): Life.ALIVE,
    (Life.ASKED_FOR, Event.STOP): Life.LEAVING,
    (Life.ASKED_FOR, Event.EXIT): Life.LOST,  # its stem went before it came
    (Life.ALIVE, Event.STOP): Life.LEAVING,
    (Life.ALIVE, Event.EXIT): Life.LOST,  # nobody asked it to
    (Life.LEAVING, Event.BIRTH): Life.LEAVING,  # asked to leave before we heard of its birth
    (Life.LEAVING, Event.EXIT): Life.GONE,
    (Life.LEAVING, Event.STOP): Life.LEAVING,  # a stop that was interrupted goes on
    (Life.LOST, Event.STOP): Life.LOST,
    (Life.GONE, Event.STOP): Life.GONE,
}


def after(life: Life, event: Event) -> Life:
    """The state that follows; anything that is not in the table is a bug of ours."""
    try:
        return MOVES[life, event]
    except KeyError:
        raise InternalError(f"a worker that is {life.name} cannot {event.name}") from None
