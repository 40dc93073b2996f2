"""`make differential`: what is pure about it, and a few seconds of the real thing."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from differential import page
from differential.compare import NOTHING, Difference, compare_files, compare_outputs, compare_traces, undeclared
from differential.declared import DECLARED, Declared
from differential.engines import ROOT, environment
from differential.loaders.case import PASSES, draw_case
from differential.loaders.datasets import DRAWS, ERRORS, HELD
from differential.loaders.play import WAYS
from differential.loaders.portray import portray
from differential.loaders.samples import KINDS, sample
from differential.methods import METHODS, draw_method
from differential.outcome import Outcome
from differential.run_scripts import find_scripts

from antifreeze.probes.bounded import run_bounded

CASES = [draw_case(seed, draw_method(seed)) for seed in range(500)]


def test_a_case_is_drawn_from_its_seed_and_method_alone() -> None:
    assert [draw_case(seed, draw_method(seed)) for seed in range(20)] == CASES[:20]
    assert draw_case(1, "fork") != draw_case(2, "fork") != draw_case(2, "spawn")


def test_five_hundred_cases_have_everything() -> None:
    natures = [case.nature for case in CASES]
    assert {case.method for case in CASES} == set(METHODS)
    assert {step.way for case in CASES for step in case.steps} >= set(PASSES)
    assert {name for nature in natures for name in nature.draws} == set(DRAWS)
    assert {nature.held for nature in natures} == set(HELD)
    assert len({nature.error for nature in natures if nature.fails_at is not None}) > 0.7 * len(ERRORS)
    assert len({nature.kind for nature in natures}) > 0.9 * len(KINDS)


def test_every_way_of_a_pass_is_known() -> None:
    assert set(PASSES) <= set(WAYS)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about kinds that it will drop
@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_made_again_as_they_were_and_look_otherwise_if_they_are(kind: str) -> None:
    assert portray(sample(kind, 3, 0.25)) == portray(sample(kind, 3, 0.25))
    assert portray([sample(kind, 3, 0.25)]) != portray((sample(kind, 3, 0.25),))


def test_there_are_a_hundred_scripts_and_each_says_what_it_is() -> None:
    scripts = find_scripts()
    assert len(scripts) >= 100
    for script in scripts:
        assert set(script.methods) <= set(METHODS) and script.methods
        main = script.path / "main.py" if script.path.is_dir() else script.path
        assert main.read_text().startswith('"""'), main
        assert "antifreeze" not in main.read_text(), f"{main}: users do not know of us"


def test_every_declared_difference_has_its_reason_and_a_name_of_its_own() -> None:
    assert all(each.torch_does and each.we_do and each.why for each in DECLARED)
    assert len({each.name for each in DECLARED}) == len(DECLARED)


def test_an_entry_is_about_some_difference_and_not_about_all() -> None:
    for each in DECLARED:
        assert not Difference("loader 1 fork", "batch", "int(1)", "int(2)").is_declared_by(each), each.name
        assert not Difference("script a/b fork", "stdout", "1", "2").is_declared_by(each), each.name


def test_the_table_on_the_page_is_the_one_of_the_module() -> None:
    assert page.main(check=True) == 0


def test_events_of_traces_are_compared_one_by_one() -> None:
    torch = [("batch", "1"), ("batch", "2"), ("end", "")]
    assert list(compare_traces("p", torch, torch)) == []
    assert list(compare_traces("p", torch, [("batch", "1"), ("error", "x"), ("end", "")])) == [
        Difference("p", "batch", "2", "error: x")
    ]
    assert list(compare_traces("p", torch, torch[:2])) == [Difference("p", "end", "", NOTHING)]


def test_a_line_that_we_add_to_a_message_is_no_difference() -> None:
    ours = [("error", "ValueError\nantifreeze: worker 0 (pid 7), batch 1, sample 2")]
    assert list(compare_traces("p", [("error", "ValueError")], ours)) == []


def test_output_and_files_are_compared() -> None:
    assert list(compare_outputs("p", "a\nb\n", "a\nc\n")) == [Difference("p", "stdout", "b", "c")]
    assert list(compare_files("p", {"x": b"1"}, {"y": b"1"})) == [
        Difference("p", "file x", "1", NOTHING),
        Difference("p", "file y", NOTHING, "1"),
    ]


def test_a_program_that_differs_without_a_declaration_is_not_fine() -> None:
    assert Outcome("p").is_fine
    assert not Outcome("p", failure="no end").is_fine
    assert not Outcome("p", (Difference("p", "stdout", "a", "b"),)).is_fine


def test_all_patterns_of_an_entry_must_match() -> None:
    entry = Declared("n", "t", "w", "y", program="script a fork", where="stdout", torch="1+", ours="2+")
    difference = Difference("script a fork", "stdout", "111", "22")
    assert difference.is_declared_by(entry)
    for other in (("script b fork", "stdout", "111", "22"), ("script a fork", "stdout", "1x", "22")):
        assert not Difference(*other).is_declared_by(entry)
    assert undeclared([difference]) == [difference]


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ["--only", "loaders", "--loaders", "8", "--method", "fork", "--jobs", "1"],
        ["--script", "errors/goes_on_after_them", "--script", "streams/uneven", "--method", "fork", "--jobs", "1"],
    ],
    ids=["loaders", "scripts"],
)
def test_a_small_part_of_it(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="diff-", dir="/tmp") as folder:
        variables = environment("torch", Path(folder)) | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
        command = [sys.executable, "-m", "differential", *arguments]
        ended = run_bounded(command, timeout_s=200, environ=variables)
    assert ended.exit_status == 0, ended.stdout + ended.stderr
