"""A state is plain data, and comes back as it was; one that is broken is refused, whatever is wrong with it."""

import contextlib
import copy
import json
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze.engine.plan.progress import (
    OURS,
    TRAITS,
    VERSION,
    Progress,
    Standpoint,
    check_same,
    fingerprint,
    from_state,
    pack,
    to_state,
    unpack,
)
from antifreeze.errors import CheckpointError

MAP = dict.fromkeys(TRAITS) | {"dataset": "map-style", "length": 20, "seeding": "torch", "num_workers": 2}
COUNTS = st.integers(0, 1 << 40)
PLAIN = st.none() | st.integers(-5, 5) | st.text(max_size=3) | st.dictionaries(st.text(max_size=2), st.integers())


@st.composite
def standpoints(draw: Any, is_stream: bool) -> Standpoint:
    done = draw(COUNTS)
    return Standpoint(
        done,
        draw(st.integers(0, done)),
        draw(st.booleans()) and is_stream,
        draw(st.sampled_from([None, "start", "here", "end"])),
        draw(st.none() | st.just({"torch": "…"})),
        draw(PLAIN),
        draw(PLAIN) if is_stream else None,
        draw(COUNTS),
    )


@st.composite
def progresses(draw: Any) -> Progress:
    is_stream, workers, planned = draw(st.booleans()), draw(st.integers(0, 3)), draw(COUNTS)
    traits = MAP | {"dataset": "iterable" if is_stream else "map-style", "num_workers": workers}
    return Progress(
        traits,
        draw(st.booleans()),
        {"loader": None},
        draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        draw(st.none() | COUNTS),
        planned,
        draw(COUNTS),
        draw(st.integers(0, max(0, workers - 1))),
        draw(st.none() | COUNTS),
        draw(st.none() | COUNTS),
        draw(st.integers(0, planned)),
        draw(PLAIN),
        draw(PLAIN),
        tuple((batch, 0, [batch]) for batch in range(min(planned, draw(st.integers(0, 3))))),
        tuple(draw(standpoints(is_stream)) for _ in range(max(1, workers))),
    )


@given(progresses())
@settings(max_examples=60, deadline=None)
def test_a_progress_comes_back_from_json_as_it_was(progress: Progress) -> None:
    assert from_state(json.loads(json.dumps(to_state(progress)))) == progress


@given(progresses(), st.data())
@settings(max_examples=150, deadline=None)
def test_a_state_with_any_part_missing_or_spoilt_is_refused_or_harmless(
    progress: Progress, data: st.DataObject
) -> None:
    state = copy.deepcopy(to_state(progress))
    holder, key = data.draw(st.sampled_from(list(parts(state))))
    if data.draw(st.booleans()):
        del holder[key]
    else:
        holder[key] = data.draw(st.sampled_from([None, -1, "x", [], {}, 1.5, True]))
    with contextlib.suppress(CheckpointError):  # and no other kind of error
        from_state(state)


def parts(section: Any) -> Any:
    for key, value in list(section.items() if isinstance(section, dict) else enumerate(section)):
        yield section, key
        if isinstance(value, dict | list):
            yield from parts(value)


STATE = to_state(Progress(MAP, False, {}, 7, planned=4, yielded=4, standpoints=(Standpoint(2, 2), Standpoint(2, 2))))


def spoilt(**changes: Any) -> dict[str, Any]:
    return STATE | {OURS: STATE[OURS] | changes}


@pytest.mark.parametrize(
    ("state", "what"),
    [
        ([], "no state of a loader, but a list"),
        ({"model": 1}, "some other loader"),
        ({"_snapshot": {}, "_steps_since_snapshot": 0}, "torchdata's loader"),
        ({"_num_yielded": 3}, "torchdata's loader"),
        (spoilt(version=VERSION + 1), f"version {VERSION + 1}, and this antifreeze reads version {VERSION}"),
        (spoilt(planned=-1), "planned is -1"),
        (spoilt(planned="4"), "planned is '4', and no whole number"),
        (spoilt(turn=2), "the turn of worker 2, of 2"),
        (spoilt(noted=5), "after the last one, 4"),
        (spoilt(standpoints=[]) | {"_iterator_finished": 1}, "_iterator_finished is 1"),
        (spoilt(standpoints=STATE[OURS]["standpoints"][:1]), "tells of 1 workers instead of 2"),
        (spoilt(open=[[9, 0, [1]]]), "left undone that had not been begun"),
        (spoilt(traits={}), "'dataset' is missing"),
    ],
)
def test_a_state_that_cannot_be_read_says_what_is_wrong_with_it(state: Any, what: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        from_state(state)
    assert what in str(caught.value)


@pytest.mark.parametrize("name", TRAITS)
def test_a_state_of_another_loader_names_what_differs_and_what_to_do(name: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        check_same(MAP, MAP | {name: "another"})
    assert TRAITS[name] in str(caught.value)
    assert "another" in str(caught.value)
    assert caught.value.try_


def test_the_number_of_workers_may_differ_where_batches_do_not_depend_on_it() -> None:
    by_ticket = MAP | {"seeding": "ticket"}
    check_same(by_ticket, by_ticket | {"num_workers": 5})


@given(st.binary())
@settings(max_examples=20, deadline=None)
def test_bytes_survive_as_text(raw: bytes) -> None:
    assert unpack(pack(raw)) == raw


@pytest.mark.parametrize("text", ["a", "ab=c", "é", None, 7, b"\xff"])
def test_text_that_is_no_base64_is_an_error(text: Any) -> None:
    with pytest.raises(ValueError, match="is not base64"):
        unpack(text)


def test_indices_are_told_apart_by_their_fingerprint() -> None:
    assert fingerprint([1, 2]) == fingerprint([1, 2]) != fingerprint([2, 1])


@pytest.mark.parametrize(
    "make",
    [
        lambda first: [{"a": first, "b": None}, ("x", 1.5)],
        lambda first: [torch.tensor([first, 2]), 3],
        lambda first: np.array([first, 2]),
        lambda first: [np.int64(first), np.float32(0.5)],
        lambda first: list(range(first, 3000)),
        lambda first: np.arange(first, 3000),
    ],
    ids=["plain", "tensor", "array", "numbers of numpy", "many", "long array"],
)
def test_what_shows_what_it_is_made_of_is_recognised(make: Any) -> None:
    assert fingerprint(make(1)) == fingerprint(make(1)) != fingerprint(make(0))
    assert fingerprint(make(1)) is not None


@pytest.mark.parametrize("index", [object(), [{"a", "b"}], type("Text", (str,), {})(), np.array([object()])])
def test_what_may_look_otherwise_in_another_process_has_no_fingerprint(index: Any) -> None:
    assert fingerprint(index) is None


def test_the_fingerprint_of_numbers_is_that_of_states_that_were_saved_before() -> None:
    assert fingerprint([3, 1, 2]) == zlib.crc32(b"[3, 1, 2]")
