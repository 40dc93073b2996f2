"""How far a pass has got, and what it takes to begin it again: as plain data (a `state_dict`), and back. Pure.

Nothing but dicts with text as keys, lists, text, numbers, True, False and None, so that it survives JSON and
`torch.load(weights_only=True)`; but for what `state_dict` methods of the user's own return, which is passed on as it is.
What users of torchdata look for stands where torchdata puts it; all that we need stands under a key of our own.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from antifreeze.errors import CheckpointError

VERSION = 2
OURS = "antifreeze"
BEGIN_ANEW = "begin this epoch anew, without load_state_dict()"

# What must be the same, and how it is called; in ticket seeding the number of workers may differ.
TRAITS = {
    "dataset": "the kind of dataset",
    "length": "the number of samples",
    "batch_size": "batch_size",
    "drop_last": "drop_last",
    "sampler": "the sampler",
    "batch_sampler": "the batch_sampler",
    "num_replicas": "the sampler's num_replicas",
    "rank": "the sampler's rank",
    "seeding": "seeding",
    "num_workers": "num_workers",
}


@dataclass(frozen=True, slots=True)
class Standpoint:
    """How far one worker has got; without workers, the trainer itself."""

    done: int = 0
    """So many of its tickets of this pass are in the user's hands."""
    marked: int = 0
    """What follows was so after so many of them."""
    has_ended: bool = False
    """Whether the user has all of its part of an iterable dataset."""
    position: str | None = None
    """start, before, here or end; None: it is as it was born."""
    generators: dict[str, Any] | None = None
    of_dataset: Any = None
    of_iterator: Any = None
    shared_out: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass has got."""

    traits: dict[str, Any]
    is_finished: bool
    """Whether the next pass is to begin."""
    generators: dict[str, Any]
    """As they were when the pass began; of a finished one, as they are when the next begins."""
    base_seed: int
    shared_seed: int | None = None
    planned: int = 0
    """So many batches were drawn from the sampler; all of them are in the user's hands, but for those that are open."""
    yielded: int = 0
    """So many the user got."""
    turn: int = 0
    """Which worker comes next."""
    fingerprint: int | None = None
    """Of the last index that was drawn."""
    epoch: int | None = None
    """Of a sampler that has one."""
    noted: int = 0
    """The sampler said what follows when so many batches had been drawn."""
    of_sampler: Any = None
    of_sampler_iterator: Any = None
    open: tuple[tuple[int, int, Any], ...] = ()
    """Batch, worker and index of those that the user does not have, though he has later ones."""
    standpoints: tuple[Standpoint, ...] = ()
    """By worker; none: batches have to be read again."""


def pack(raw: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(raw).decode("ascii")


def unpack(text: Any) -> bytes:
    """The bytes that this text is; ValueError if it is none of ours."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(f"{str(text)[:40]!r} is not base64: {error}") from None


def fingerprint(index: Any) -> int | None:
    """A number by which an index is recognised, in another process as well; None: it is made of something unknown.

    The text of an object may hold its address, that of a set the order of this process.
    """
    try:
        text = repr(_recognised(index))
    except (_Unknown, RecursionError):
        return None
    return zlib.crc32(text.encode("utf-8", "backslashreplace"))


class _Unknown(Exception):
    """Nobody knows what the text of such a thing depends on."""


_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def _recognised(part: Any) -> Any:
    kind = type(part)
    if any(kind is each for each in _PLAIN):
        return part
    if kind is list or kind is tuple:
        return kind(map(_recognised, part))
    if kind is dict:
        return {_recognised(key): _recognised(value) for key, value in part.items()}
    if kind.__module__ == "torch" and kind.__name__ == "Tensor" and not part.is_sparse:
        return "tensor", str(part.dtype), part.tolist()
    if kind.__module__ == "numpy" and hasattr(part, "dtype") and not part.dtype.hasobject:
        return part.item() if not part.shape else ("array", part.dtype.str, part.shape, part.tobytes())
    raise _Unknown


# --- to plain data


def to_state(progress: Progress) -> dict[str, Any]:
    """A progress as a `state_dict`."""
    ours = {
        "version": VERSION,
        "traits": dict(progress.traits),
        "generators": progress.generators,
        "base_seed": progress.base_seed,
        "shared_seed": progress.shared_seed,
        "planned": progress.planned,
        "yielded": progress.yielded,
        "turn": progress.turn,
        "fingerprint": progress.fingerprint,
        "epoch": progress.epoch,
        "noted": progress.noted,
        "open": [list(each) for each in progress.open],
        "standpoints": [_ours_of(each) for each in progress.standpoints],
    }
    if progress.traits["num_workers"] == 0:
        return _shown_inline(progress) | {OURS: ours}
    snapshot = {
        "_snapshot_step": progress.yielded,
        "_last_yielded_worker_id": (progress.turn - 1) % progress.traits["num_workers"],
        "_main_snapshot": {"_num_workers": progress.traits["num_workers"], **_shown_sampler(progress)},
        "_worker_snapshots": {
            f"worker_{number}": {"worker_id": number, **_shown(each, progress)}
            for number, each in enumerate(progress.standpoints)
        },
    }
    return {
        "_snapshot": snapshot,
        "_steps_since_snapshot": 0,
        "_iterator_finished": progress.is_finished,
        OURS: ours,
    }


def _shown_inline(progress: Progress) -> dict[str, Any]:
    return {
        **_shown_sampler(progress),
        "_num_yielded": progress.yielded,
        **_shown(progress.standpoints[0] if progress.standpoints else Standpoint(), progress),
        "_iterator_finished": progress.is_finished,
    }


def _shown_sampler(progress: Progress) -> dict[str, Any]:
    return {
        "_index_sampler_state": progress.of_sampler,
        "_sampler_iter_state": progress.of_sampler_iterator,
        "_sampler_iter_yielded": progress.planned,
        "_shared_seed": progress.shared_seed,
        "_base_seed": progress.base_seed,
    }


def _shown(standpoint: Standpoint, progress: Progress) -> dict[str, Any]:
    """What torchdata would show of it."""
    fetcher = {"dataset_iter_state": standpoint.of_iterator, "fetcher_ended": standpoint.has_ended}
    is_stream = progress.traits["dataset"] == "iterable"
    return {"fetcher_state": fetcher if is_stream else None, "dataset_state": standpoint.of_dataset}


def _ours_of(standpoint: Standpoint) -> dict[str, Any]:
    return {
        "done": standpoint.done,
        "marked": standpoint.marked,
        "position": standpoint.position,
        "generators": standpoint.generators,
        "shared_out": standpoint.shared_out,
    }


# --- and back


def from_state(state: Any) -> Progress:
    """The progress that a `state_dict` tells of; CheckpointError if it is none of ours, or broken."""
    ours = _section(state)
    with naming_the_fault():
        traits = _mapping(ours, "traits")
        for name in TRAITS:
            traits[name]
        workers = _count(traits, "num_workers")
        places = _places(state, workers)
        raw = ours["standpoints"]
        if len(raw) not in (0, max(1, workers)):
            raise ValueError(f"it tells of {len(raw)} workers instead of {workers}")
        shown = state["_snapshot"]["_main_snapshot"] if workers else state
        progress = Progress(
            traits=dict(traits),
            is_finished=_flag(state, "_iterator_finished"),
            generators=dict(_mapping(ours, "generators")),
            base_seed=_integer(ours, "base_seed"),
            shared_seed=_integer_or_none(ours, "shared_seed"),
            planned=_count(ours, "planned"),
            yielded=_count(ours, "yielded"),
            turn=_count(ours, "turn"),
            fingerprint=_integer_or_none(ours, "fingerprint"),
            epoch=_integer_or_none(ours, "epoch"),
            noted=_count(ours, "noted"),
            of_sampler=shown["_index_sampler_state"],
            of_sampler_iterator=shown["_sampler_iter_state"],
            open=tuple(_open_ticket(each, max(1, workers)) for each in ours["open"]),
            standpoints=tuple(_standpoint(each, places[number]) for number, each in enumerate(raw)),
        )
        _check_counts(progress, workers)
    return progress


def _section(state: Any) -> Mapping[str, Any]:
    if not isinstance(state, Mapping):
        raise CheckpointError(f"this is no state of a loader, but a {type(state).__name__}", try_=BEGIN_ANEW)
    ours = state.get(OURS)
    if not isinstance(ours, Mapping):
        whose = "torchdata's" if "_snapshot" in state or "_num_yielded" in state else "some other"
        raise CheckpointError(
            f"this is a state of {whose} loader, not one of antifreeze.StatefulDataLoader",
            why=f"it has no section {OURS!r}",
            try_=f"load it into a loader of that class, or {BEGIN_ANEW}",
        )
    if ours.get("version") != VERSION:
        raise CheckpointError(
            f"this state has version {ours.get('version')!r}, and this antifreeze reads version {VERSION}",
            try_=f"load it with the antifreeze that wrote it, or {BEGIN_ANEW}",
        )
    return ours


@contextmanager
def naming_the_fault() -> Iterator[None]:
    """Whatever goes wrong in here is the fault of a state that is broken."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # of whatever kind: anything can be wrong with a file
        named = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(
            "this state is broken", why=named, try_=f"an older checkpoint, or {BEGIN_ANEW}"
        ) from error


def _places(state: Mapping[str, Any], workers: int) -> list[Mapping[str, Any]]:
    if workers == 0:
        return [state]
    by_worker = state["_snapshot"]["_worker_snapshots"]
    return [by_worker[f"worker_{number}"] for number in range(len(by_worker))]


def _standpoint(ours: Mapping[str, Any], shown: Mapping[str, Any]) -> Standpoint:
    fetcher = shown["fetcher_state"]
    position = ours["position"]
    if position not in (None, "start", "before", "here", "end"):
        raise ValueError(f"a worker is said to be at {position!r}")
    return Standpoint(
        done=_count(ours, "done"),
        marked=_count(ours, "marked"),
        has_ended=fetcher is not None and _flag(fetcher, "fetcher_ended"),
        position=position,
        generators=ours["generators"],
        of_dataset=shown["dataset_state"],
        of_iterator=None if fetcher is None else fetcher["dataset_iter_state"],
        shared_out=_count(ours, "shared_out"),
    )


def _open_ticket(raw: Any, workers: int) -> tuple[int, int, Any]:
    batch, worker, index = raw
    if not (_is_integer(batch) and _is_integer(worker) and batch >= 0 and 0 <= worker < workers):
        raise ValueError(f"{raw!r} is no batch that was left undone")
    return batch, worker, index


def _check_counts(progress: Progress, workers: int) -> None:
    if progress.turn >= max(1, workers):
        raise ValueError(f"it is the turn of worker {progress.turn}, of {workers}")
    if progress.noted > progress.planned:
        raise ValueError(f"the sampler's state is of batch {progress.noted}, after the last one, {progress.planned}")
    if any(each.marked > each.done for each in progress.standpoints):
        raise ValueError("a worker's state is from after its last batch")
    if any(batch >= progress.planned for batch, _, _ in progress.open):
        raise ValueError("a batch was left undone that had not been begun")


def _count(section: Mapping[str, Any], name: str) -> int:
    value = _integer(section, name)
    if value < 0:
        raise ValueError(f"{name} is {value}")
    return value


def _integer(section: Mapping[str, Any], name: str) -> int:
    value = section[name]
    if not _is_integer(value):
        raise ValueError(f"{name} is {value!r}, and no whole number")
    return value  # type: ignore[no-any-return]


def _integer_or_none(section: Mapping[str, Any], name: str) -> int | None:
    return None if section[name] is None else _integer(section, name)


def _flag(section: Mapping[str, Any], name: str) -> bool:
    value = section[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, and neither True nor False")
    return value


def _mapping(section: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = section[name]
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is a {type(value).__name__}, and no dict")
    return value


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_same(saved: Mapping[str, Any], present: Mapping[str, Any]) -> None:
    """Refuse a state that belongs to another loader: CheckpointError says what differs."""
    for name, title in TRAITS.items():
        if saved[name] == present[name] or (name == "num_workers" and saved["seeding"] == "ticket"):
            continue
        raise CheckpointError(
            f"this state belongs to another loader: {title} was {_say(saved[name])} and is {_say(present[name])}",
            where="load_state_dict()",
            try_=_advice(name, saved[name]),
        )


def _advice(name: str, saved: Any) -> str:
    if name in ("batch_size", "drop_last", "num_workers", "seeding"):
        return f"{name}={saved!r}, or {BEGIN_ANEW}"
    return f"a loader like the one that it came from, or {BEGIN_ANEW}"


def _say(value: Any) -> str:
    return "none" if value is None else str(value)
