"""Every exception of ours."""

import copy
import inspect
import pickle
import re

import pytest

from antifreeze import errors
from antifreeze.codes import NAMES
from antifreeze.errors import AntifreezeError, WorkerLost

CLASSES = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, AntifreezeError)]
PARTS = {"where": "batch 3", "why": "it was so", "try_": "something else", "code": "AF301"}
OF_WORKERS = {"worker": 2, "pid": 4711, "exitcode": -9, "batch": 3}


def an_error(kind: type[AntifreezeError]) -> AntifreezeError:
    own = OF_WORKERS if issubclass(kind, WorkerLost) else {}
    return kind("something happened", **PARTS, **own)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_with_all_that_it_knows(kind: type[AntifreezeError]) -> None:
    error = an_error(kind)
    error.add_note("a note")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        arrived = pickle.loads(pickle.dumps(error, protocol))
        assert type(arrived) is kind
        assert str(arrived) == str(error)
        assert vars(arrived) == vars(error)
        assert arrived.__notes__ == ["a note"]
    assert vars(copy.copy(error)) == vars(error)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_that_knows_next_to_nothing_survives_too(kind: type[AntifreezeError]) -> None:
    arrived = pickle.loads(pickle.dumps(kind("something happened")))
    assert str(arrived) == "something happened"
    assert arrived.where is arrived.why is arrived.try_ is arrived.code is None


def test_a_message_says_what_where_why_and_what_to_try_in_this_order() -> None:
    assert str(an_error(AntifreezeError)).splitlines() == [
        "something happened",
        "  where  batch 3",
        "  why    AF301 cannot-cross: it was so",
        "  try    something else",
    ]


def test_a_message_leaves_out_what_is_not_known() -> None:
    assert str(AntifreezeError("x", why="y")) == "x\n  why    y"


def test_a_problem_is_named_even_without_a_reason() -> None:
    assert str(AntifreezeError("x", code="AF302")) == "x\n  why    AF302 state-differs"


def test_codes_and_names_of_problems_are_unique() -> None:
    assert len(set(NAMES.values())) == len(NAMES)
    assert all(re.fullmatch(r"AF\d{3}", code) for code in NAMES)


def test_every_error_is_also_the_builtin_that_torch_raises_there() -> None:
    builtins = {
        "ConfigError": ValueError,
        "CheckpointError": ValueError,
        "CannotCross": TypeError,
        "SampleFailed": RuntimeError,
        "WorkerLost": RuntimeError,
        "WorkerCrashed": RuntimeError,
        "WorkerKilled": RuntimeError,
        "WorkerFrozen": RuntimeError,
        "ArenaError": RuntimeError,
        "Fallback": RuntimeError,
        "InternalError": RuntimeError,
    }
    assert {kind.__name__ for kind in CLASSES} == {"AntifreezeError", *builtins}
    for name, builtin in builtins.items():
        assert issubclass(getattr(errors, name), builtin)


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    assert all(kind.__name__ in errors.__doc__ for kind in CLASSES)
