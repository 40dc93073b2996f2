"""Annotations of GitHub Actions, escaped as its runner reads them."""

import dataclasses

from antifreeze.doctor.facts import Place
from antifreeze.doctor.finding import Weight
from antifreeze.doctor.render.github import as_github
from doctor.frozen import DOUBT, FROZEN, POOL


def test_a_finding_is_one_line_with_file_line_and_title() -> None:
    said = as_github(FROZEN, [POOL])
    assert said.startswith(
        "::error file=project/data.py,line=88,title=AF101 fork-after-threads::worker 1 never returned sample 2.%0Awhy: "
    )
    assert "%0Afix: antifreeze run project/train.py --epochs 3%0A" in said
    assert len(said.splitlines()) == 1


def test_files_are_named_from_where_the_command_was_given() -> None:
    assert FROZEN.source is not None
    module = dataclasses.replace(FROZEN.source, script="pack/train.py", files=("pack/train.py", "pack/data.py"))
    in_module = dataclasses.replace(POOL, where=Place("pack/data.py", 1))
    assert " file=pack/data.py,line=1," in as_github(dataclasses.replace(FROZEN, source=module), [in_module])
    assert " file=project/data.py,line=88," in as_github(dataclasses.replace(FROZEN, source=None), [POOL])


def test_what_means_something_to_the_runner_is_escaped() -> None:
    odd = dataclasses.replace(DOUBT, where=Place("a,b:c%.py", 3))
    said = as_github(FROZEN, [odd])
    assert said.startswith("::notice file=project/a%2Cb%3Ac%25.py,line=3,title=AF404 too-many-workers::100 %25 of the ")
    assert "for nothing: they wait.%0Awhy: two lines%0Aof why" in said


def test_a_finding_without_a_place_has_a_title_only_and_its_weight_is_its_level() -> None:
    likely = dataclasses.replace(DOUBT, weight=Weight.LIKELY)
    assert as_github(FROZEN, [likely]).startswith("::warning title=AF404 too-many-workers::")


def test_nothing_found_is_nothing_said() -> None:
    assert as_github(FROZEN, []) == ""
