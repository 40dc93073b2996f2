"""What is known of a loader from its source and from its life, and what checks make of trials."""

from dataclasses import replace

import pytest

from antifreeze.doctor.cases import loader_cases
from antifreeze.doctor.checks.class_under_main_guard import class_under_main_guard
from antifreeze.doctor.checks.fixed_worker_seed import fixed_worker_seed
from antifreeze.doctor.checks.lock_around_reads import lock_around_reads
from antifreeze.doctor.checks.no_main_guard import no_main_guard
from antifreeze.doctor.checks.start_method_set_twice import start_method_set_twice
from antifreeze.doctor.checks.too_many_workers import too_many_workers
from antifreeze.doctor.checks.workers_restarted import workers_restarted
from antifreeze.doctor.facts import (
    Clash,
    Facts,
    Loader,
    LoaderCall,
    Machine,
    Obstacle,
    Outcome,
    Place,
    Raised,
    Run,
    Source,
    Trial,
)
from antifreeze.doctor.finding import Weight

HERE = Place("train.py", 30)
SPAWN = Place("train.py", 5, "", "mp.set_start_method('spawn')")


def facts(
    call: LoaderCall, *, live: Loader | None = None, source: Source | None = None, default: str = "fork"
) -> Facts:
    return Facts(
        machine=Machine(cpus=4, usable_cpus=4, start_method=default),
        source=replace(source or Source(script="train.py"), loaders=(call,)),
        loaders=() if live is None else (live,),
    )


@pytest.mark.parametrize(
    ("known", "method"),
    [
        (facts(LoaderCall(place=HERE)), "fork"),
        (facts(LoaderCall(place=HERE), default="forkserver"), "forkserver"),
        (facts(LoaderCall(place=HERE, start_method="spawn")), "spawn"),
        (facts(LoaderCall(place=HERE, arguments={"multiprocessing_context": "ctx"})), None),
        (facts(LoaderCall(place=HERE, arguments={"**": "kwargs"})), None),
        (
            facts(LoaderCall(place=HERE), source=Source(script="t", start_methods=(SPAWN,), start_method="spawn")),
            "spawn",
        ),
        (facts(LoaderCall(place=HERE), source=Source(script="t", start_methods=(SPAWN,))), None),
        (facts(LoaderCall(place=HERE), live=Loader(number=0, built_at=HERE, start_method="spawn")), "spawn"),
    ],
)
def test_the_start_method_is_what_is_nearest_to_the_loader(known: Facts, method: str | None) -> None:
    (loader,) = loader_cases(known)
    assert loader.start_method == method


def test_a_live_loader_and_its_call_are_one_and_others_stand_alone() -> None:
    other = LoaderCall(place=Place("train.py", 40), workers=3)
    known = facts(LoaderCall(place=HERE, workers=None), live=Loader(number=1, built_at=HERE, num_workers=2))
    assert known.source is not None
    known = replace(known, source=replace(known.source, loaders=(*known.source.loaders, other)))
    assert [(each.number, each.workers) for each in loader_cases(known)] == [(1, 2), (None, 3)]


# --- trials make a finding surer, or take it away


def test_a_worker_that_did_not_find_the_class_makes_its_guard_certain() -> None:
    live = Loader(number=0, built_at=HERE, num_workers=2, start_method="spawn")
    said = "AttributeError: Can't get attribute 'Numbers' on <module '__mp_main__' from 'train.py'>"
    trial = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.CRASH, is_as_written=True, stderr=said)
    (finding,) = class_under_main_guard.examine(Facts(loaders=(live,), trials=(trial,)))
    assert finding.weight is Weight.CERTAIN
    assert "Numbers" in finding.why


def test_an_obstacle_under_the_guard_is_enough_without_the_source() -> None:
    place = Place("train.py", 20)
    obstacle = Obstacle(
        path="dataset", what="the class Numbers at train.py:20", why="…", place=place, is_main_guard=True
    )
    live = Loader(number=0, built_at=HERE, num_workers=2, start_method="spawn", obstacles=(obstacle,))
    (finding,) = class_under_main_guard.examine(Facts(loaders=(live,)))
    assert (finding.weight, finding.where) == (Weight.LIKELY, place)
    assert "Numbers" in finding.why
    assert class_under_main_guard.examine(Facts(loaders=(replace(live, start_method="fork"),))) == []
    assert class_under_main_guard.examine(Facts(loaders=(replace(live, num_workers=0),))) == []


def test_the_error_of_python_makes_a_missing_guard_certain() -> None:
    live = Loader(number=0, built_at=HERE, iterated_at=Place("train.py", 31), num_workers=2, start_method="spawn")
    trial = Trial(
        loader=0,
        engine="torch",
        workers=2,
        outcome=Outcome.CRASH,
        is_as_written=True,
        stderr="… its bootstrapping phase.",
    )
    (finding,) = no_main_guard.examine(Facts(loaders=(live,), trials=(trial,)))
    assert (finding.weight, finding.where) == (Weight.CERTAIN, live.iterated_at)


@pytest.mark.parametrize(("batches", "weights"), [(4, [Weight.CERTAIN]), (3000, [Weight.LIKELY]), (100_000, [])])
def test_a_slow_start_counts_against_the_length_of_the_epoch(batches: int, weights: list[Weight]) -> None:
    sick = workers_restarted.sick
    known = replace(sick, loaders=(replace(sick.loaders[0], batches=batches),))
    assert [finding.weight for finding in workers_restarted.examine(known)] == weights


def test_without_a_trial_a_restart_is_only_possible() -> None:
    (finding,) = workers_restarted.examine(Facts(source=workers_restarted.sick.source))
    assert finding.weight is Weight.POSSIBLE


def test_a_lock_of_threads_is_no_lock_between_workers() -> None:
    source = lock_around_reads.sick.source
    assert source is not None
    (dataset,) = source.datasets
    (sight,) = dataset.sights
    own = replace(dataset, sights=(replace(sight, made_by="threading.Lock"),))
    assert lock_around_reads.examine(Facts(source=replace(source, datasets=(own,)))) == []
    (finding,) = lock_around_reads.examine(Facts(source=source))
    assert finding.weight is Weight.POSSIBLE


@pytest.mark.parametrize(("fewer_s", "weight"), [(1.0, Weight.LIKELY), (3.0, Weight.POSSIBLE)])
def test_too_many_workers_are_likely_only_if_fewer_are_as_fast(fewer_s: float, weight: Weight) -> None:
    many = Trial(
        loader=0,
        engine="torch",
        workers=8,
        outcome=Outcome.OK,
        is_as_written=True,
        batches=11,
        samples=110,
        seconds=2.0,
        first_batch_s=1.0,
    )
    few = replace(many, workers=4, is_as_written=False, seconds=1.0 + fewer_s)
    known = facts(LoaderCall(place=HERE), live=Loader(number=0, built_at=HERE, num_workers=8))
    (finding,) = too_many_workers.examine(replace(known, trials=(many, few)))
    assert finding.weight is weight


@pytest.mark.parametrize(("same_seeds", "weights"), [(True, [Weight.CERTAIN]), (None, [Weight.LIKELY]), (False, [])])
def test_a_trial_of_two_epochs_decides_on_seeds(same_seeds: bool | None, weights: list[Weight]) -> None:
    sick = fixed_worker_seed.sick
    live = Loader(number=0, built_at=Place("train.py", 33), num_workers=2)
    trial = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.OK, is_as_written=True, same_seeds=same_seeds)
    found = fixed_worker_seed.examine(replace(sick, loaders=(live,), trials=(trial,)))
    assert [finding.weight for finding in found] == weights


def test_a_start_method_that_clashes_in_the_source_is_not_told_if_the_program_ran() -> None:
    source = Source(script="train.py", start_method_clashes=(Clash(settled=Place("train.py", 1), set_again=SPAWN),))
    (finding,) = start_method_set_twice.examine(Facts(source=source))
    assert finding.weight is Weight.POSSIBLE
    ran = Run(command="python train.py", outcome=Outcome.OK, reached_a_loader=True)
    assert start_method_set_twice.examine(Facts(source=source, run=ran)) == []
    raised = Raised(type="RuntimeError", message="context has already been set", stage="script", place=SPAWN)
    (finding,) = start_method_set_twice.examine(Facts(source=source, run=replace(ran, raised=raised)))
    assert "train.py:1 has settled it" in finding.why
