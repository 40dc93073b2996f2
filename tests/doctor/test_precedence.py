"""Which finding explains which other: the table is sound, and weights and loaders are minded."""

from dataclasses import replace
from graphlib import TopologicalSorter

import pytest

from antifreeze.codes import NAMES
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.precedence import EXPLAINS, ONLY_IF_POSSIBLE, explains

HANG = Finding(code="AF103", weight=Weight.LIKELY, what="", why="", fix=(), loader=0)
CAUSE = replace(HANG, code="AF101")


def test_there_are_no_cycles() -> None:
    TopologicalSorter(EXPLAINS).prepare()


def test_only_known_codes_stand_in_it_once_and_in_order() -> None:
    assert list(EXPLAINS) == sorted(EXPLAINS)
    assert all(list(symptoms) == sorted(set(symptoms)) for symptoms in EXPLAINS.values())
    assert {*EXPLAINS, *(code for symptoms in EXPLAINS.values() for code in symptoms)} <= NAMES.keys()
    assert all(symptom in EXPLAINS[cause] for cause, symptom in ONLY_IF_POSSIBLE)


def test_a_likely_cause_explains_what_is_certain() -> None:
    assert explains(CAUSE, replace(HANG, weight=Weight.CERTAIN))
    assert not explains(HANG, CAUSE)


@pytest.mark.parametrize("weight", Weight)
def test_a_possible_cause_explains_only_what_is_possible(weight: Weight) -> None:
    possible = replace(CAUSE, weight=Weight.POSSIBLE)
    assert explains(possible, replace(HANG, weight=weight)) == (weight is Weight.POSSIBLE)


def test_a_cause_explains_symptoms_of_its_own_loader_and_of_the_program() -> None:
    assert not explains(CAUSE, replace(HANG, loader=1))
    assert explains(CAUSE, replace(HANG, loader=None))
    assert explains(replace(CAUSE, loader=None), HANG)


def test_a_finding_may_say_that_it_is_no_cause_this_time() -> None:
    assert not explains(replace(CAUSE, is_cause=False), HANG)


def test_what_hangs_explains_orphans_only_if_these_are_no_more_than_possible() -> None:
    orphans = replace(HANG, code="AF106", weight=Weight.POSSIBLE)
    assert explains(HANG, orphans)
    assert not explains(HANG, replace(orphans, weight=Weight.CERTAIN))
