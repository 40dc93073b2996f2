"""An exception of the target → the fact that tells of it."""

from __future__ import annotations

from antifreeze.doctor.facts import Raised
from antifreeze.probes.places import PlaceMaker

MOST_CHARACTERS = 2000


def raised_fact(
    error: BaseException,
    *,
    stage: str,
    places: PlaceMaker,
    worker: int | None = None,
    sample: str | None = None,
    batch: tuple[str, ...] = (),
    culprit: str = "",
    swallowed: str = "",
) -> Raised:
    frames, place = places.of_traceback(error.__traceback__)
    return Raised(
        type=type_name(type(error)),
        message=message_of(error),
        stage=stage,
        place=place,
        frames=frames,
        worker=worker,
        sample=sample,
        batch=batch,
        culprit=culprit,
        swallowed=swallowed,
    )


def type_name(kind: type) -> str:
    """With its module, unless that is the language or the script."""
    name = kind.__qualname__
    return name if kind.__module__ in ("builtins", "__main__", "__mp_main__") else f"{kind.__module__}.{name}"


def message_of(error: BaseException) -> str:
    try:
        return str(error)[:MOST_CHARACTERS]
    except Exception:  # noqa: BLE001 - an exception class of the user's can do anything
        return ""
