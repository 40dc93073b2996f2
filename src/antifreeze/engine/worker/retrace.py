"""Fetches a sample once more under a trace, to name the exception that the dataset's own `except` swallowed.

The trace is this thread's, and lasts for that one fetch.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

# Steps of Python that are traced before the rest goes on untraced: seconds, where a step takes a microsecond or two.
MOST_STEPS = 2_000_000
# With these, loops and generators end: no failure, and not the user's `except`.
_NO_FAILURES = (StopIteration, StopAsyncIteration, GeneratorExit)
_LIBRARIES = tuple({os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")})

Place = tuple[str, int]


def retrace(fetch: Callable[[], Any]) -> str:
    """One sentence on what a fetch that returned None does when it is made again."""
    trace = _Trace()
    before = sys.gettrace()
    try:
        sys.settrace(trace.on_call)
        sample = fetch()
    except Exception as error:  # this time it is not swallowed, and that is what we came for
        return f"Fetched once more, it raised {_shown(error)}."
    finally:
        sys.settrace(before)
    swallowed = trace.swallowed()
    if sample is not None:
        return "Fetched once more, it was not None: what went wrong did not recur."
    if swallowed is None:
        return "Fetched once more under a trace, it was None again, and no exception was caught on the way."
    return f"Fetched once more under a trace: {swallowed}."


@dataclass(slots=True)
class _Flight:
    """An exception on its way up."""

    error: BaseException
    frame: FrameType
    """Where it is."""
    places: list[Place] = field(default_factory=list)
    """Where it was, the first one first."""
    caught: Place | None = None


class _Trace:
    """Follows exceptions from where they are raised to where they are caught."""

    def __init__(self) -> None:
        self._flights: dict[int, _Flight] = {}
        self._under_way: dict[FrameType, _Flight] = {}
        self._steps = 0

    def on_call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._on_event

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._steps += 1
        if self._steps > MOST_STEPS:
            sys.settrace(None)
            return None
        if event == "exception":
            self._note_flight(frame, argument[1])
        elif event == "line" and self._under_way and (flight := self._under_way.pop(frame, None)) is not None:
            # It goes on in the same frame: caught there, unless it turns up further above (`finally`, `raise`).
            flight.caught = _place(frame)
        return self._on_event

    def _note_flight(self, frame: FrameType, error: Any) -> None:
        if not isinstance(error, BaseException) or isinstance(error, _NO_FAILURES):
            return
        flight = self._flights.get(id(error))
        if flight is None:
            flight = self._flights[id(error)] = _Flight(error, frame)
        self._under_way.pop(flight.frame, None)
        self._under_way[frame] = flight
        flight.frame, flight.caught = frame, None
        flight.places.append(_place(frame))

    def swallowed(self) -> str | None:
        """The last exception that was caught, by the user's own code if there is one such."""
        caught = [(flight, flight.caught) for flight in self._flights.values() if flight.caught is not None]
        if not caught:
            return None
        flight, place = next((each for each in reversed(caught) if _is_users(each[1])), caught[-1])
        origin = next(filter(_is_users, flight.places), flight.places[0])
        return f"{_shown(flight.error)} at {_line(origin)}, caught at {_line(place)}"


def _place(frame: FrameType) -> Place:
    return frame.f_code.co_filename, frame.f_lineno


def _is_users(place: Place) -> bool:
    path = place[0]
    return not path.startswith("<frozen") and not os.path.realpath(path).startswith(_LIBRARIES)


def _line(place: Place) -> str:
    return f"{os.path.basename(place[0])}:{place[1]}"


def _shown(error: BaseException) -> str:
    try:
        message = str(error)[:200]
    except Exception:  # an exception class of the user's can do anything
        message = ""
    return f"`{type(error).__qualname__}`" + (f" ({message})" if message else "")
