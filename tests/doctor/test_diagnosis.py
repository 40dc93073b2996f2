"""Which findings are told: causes before symptoms, each once, as selected."""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze.doctor.advice import advise, verdicts
from antifreeze.doctor.checks.fork_after_threads import fork_after_threads
from antifreeze.doctor.checks.sample_fails import sample_fails
from antifreeze.doctor.checks.shared_file_offset import shared_file_offset
from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.facts import Facts, Held, Loader, Outcome, Place, Raised, Source, Trial
from antifreeze.doctor.finding import Weight

LINE = Place("train.py", 33, "__getitem__", "self.zip.read(name)")
RAISED = Raised(type="BadZipFile", message="Bad CRC-32", stage="fetch", place=LINE, sample="53")


def codes(facts: Facts, **wanted: tuple[str, ...]) -> list[str]:
    return [finding.code for finding in diagnose(facts, **wanted)]


def two_loaders() -> Facts:
    """The first shares an archive between its workers; a sample of the second is damaged."""
    archive = Held(path="dataset.zip", kind="archive", what="a ZipFile", place=Place("train.py", 27))
    failed = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.ERROR, is_as_written=True, raised=RAISED)
    again = replace(failed, workers=1, is_as_written=False)
    alone = Trial(loader=0, engine="torch", workers=0, outcome=Outcome.OK, is_whole_epoch=True)
    other = [replace(failed, loader=1), replace(failed, loader=1, workers=0, is_as_written=False)]
    return Facts(
        loaders=(
            Loader(number=0, num_workers=2, start_method="fork", held=(archive,)),
            Loader(number=1, num_workers=2, start_method="fork"),
        ),
        trials=(failed, again, alone, *other),
    )


def test_a_likely_cause_hides_its_symptom_though_that_was_seen_for_certain() -> None:
    facts = replace(two_loaders(), loaders=two_loaders().loaders[:1], trials=two_loaders().trials[:3])
    assert [(finding.code, finding.weight) for finding in sample_fails.examine(facts)] == [("AF321", Weight.CERTAIN)]
    assert codes(facts) == ["AF307"]


def test_a_cause_explains_symptoms_of_its_own_loader_only() -> None:
    told = diagnose(two_loaders())
    assert [(finding.code, finding.loader) for finding in told] == [("AF321", 1), ("AF307", 0)]


def test_a_cause_that_is_only_possible_hides_nothing() -> None:
    hang = fork_after_threads.sick
    loader = replace(hang.loaders[0], held=())
    told = {finding.code: finding.weight for finding in diagnose(replace(hang, loaders=(loader,)))}
    assert told["AF101"] is Weight.POSSIBLE


def test_a_hang_that_only_our_own_trials_bring_about_is_no_problem() -> None:
    hang = fork_after_threads.sick
    works = replace(hang.trials[0], outcome=Outcome.OK, stuck=())
    later = replace(hang.trials[0], workers=1, is_as_written=False)
    assert codes(hang) == ["AF101"]
    assert codes(replace(hang, trials=(works, later))) == []


def test_the_surest_comes_first() -> None:
    weights = [finding.weight for finding in diagnose(two_loaders())]
    assert weights == sorted(weights)


def test_select_and_ignore_take_beginnings_of_codes() -> None:
    facts = two_loaders()
    assert codes(facts, select=("AF32",)) == ["AF321"]
    assert codes(facts, ignore=("AF30",)) == ["AF321"]
    assert codes(facts, select=("AF3",), ignore=("AF307", "AF321")) == []


def test_what_several_trials_show_is_told_once() -> None:
    facts = two_loaders()
    again = replace(facts, trials=(*facts.trials, *facts.trials))
    assert codes(again) == codes(facts)


def test_a_comment_in_the_line_hushes_a_finding() -> None:
    facts = shared_file_offset.sick
    source = Source(script="train.py", ignored={"train.py:27": ("AF307",)})
    assert codes(facts) == ["AF307"]
    assert codes(replace(facts, source=source)) == []
    assert codes(replace(facts, source=replace(source, ignored={"train.py:27": ("*",)}))) == []


# --- no facts can make it fail

WORDS = (
    *("", "0", "13", "-5", "'a'", "{x}", "²", "fetch", "collate", "init", "send", "start", "idle", "worker", "trainer"),
    *("lock", "socket", "sleep", "fork", "spawn", "torch", "antifreeze", "dataset.lock", "file", "executor", "lmdb"),
    *("SIGBUS", "SIGKILL", "sys.exit", "StopIteration", "OSError", "R", "S", "T", "t", "next", "exit", "threading.py"),
    *("DataLoader timed out after 3 seconds", "Too many open files", "step", "multiprocessing/synchronize.py"),
)
NUMBERS = (-2, -1, 0, 1, 2, 8, 250_000, 2**33)
TIMES = (-1.0, 0.0, 0.001, 3.0, 1e9, math.inf, math.nan)
KNOWN: dict[Any, tuple[Any, ...]] = {str: WORDS, int: NUMBERS, float: TIMES, bool: (False, True)}


def anything(kind: Any, random: Random) -> Any:
    """A value of a type as it stands in `facts.py`, without regard to what it means."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in KNOWN:
        return random.choice(KNOWN[kind])
    if kind is types.NoneType:
        return None
    if origin in (types.UnionType, typing.Union):
        return anything(random.choice(arguments), random)
    if origin is tuple:
        return tuple(anything(arguments[0], random) for _ in range(random.randrange(3)))
    if origin is Mapping:
        return {random.choice(WORDS): anything(arguments[1], random) for _ in range(random.randrange(3))}
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return kind(**{name: anything(hint, random) for name, hint in hints_of(kind).items()})
    return random.choice(list(kind))


@cache
def hints_of(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0, max_value=2**32))
def test_no_facts_can_make_a_diagnosis_fail(seed: int) -> None:
    facts = anything(Facts, Random(seed))
    findings = diagnose(facts)
    verdicts(facts, findings)
    advise(facts)
