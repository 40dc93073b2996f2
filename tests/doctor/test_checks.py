"""What every check promises: it finds its problem in its own sick facts and not in healthy ones, and its page is whole.

Each test goes over all checks at once and names those that break the promise: hundreds of tests would take minutes.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from antifreeze.codes import NAMES
from antifreeze.doctor import checks
from antifreeze.doctor.check import Check
from antifreeze.doctor.checks import CHECKS
from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.facts import Facts
from antifreeze.doctor.finding import Finding, Weight

PARAGRAPHS = ["What happens:", "How we know:", "What to do:", "Looks like:", "Read on:"]


def breaking(is_kept: Callable[[Check], bool]) -> list[str]:
    """The checks that do not keep a promise."""
    return [f"{check.code} {check.name}" for check in CHECKS if not is_kept(check)]


def page(check: Check) -> str:
    return (sys.modules[check.module].__doc__ or "").strip()


def test_every_module_has_one_check_that_is_called_like_it() -> None:
    modules = sorted(path.stem for path in Path(checks.__file__).parent.glob("[!_]*.py"))
    assert sorted(check.module.rpartition(".")[2] for check in CHECKS) == modules
    assert breaking(lambda check: check.module.endswith(f".{check.name.replace('-', '_')}")) == []


def test_codes_are_listed_as_the_checks_have_them() -> None:
    assert {check.code: check.name for check in CHECKS} == NAMES, "run: make docs"


def test_the_sick_have_it() -> None:
    assert breaking(lambda check: {finding.code for finding in check.examine(check.sick)} == {check.code}) == []


def test_the_healthy_do_not_have_it() -> None:
    assert breaking(lambda check: check.examine(check.healthy) == []) == []


def test_what_is_unknown_is_not_diagnosed() -> None:
    assert breaking(lambda check: check.examine(Facts()) == []) == []


def test_no_other_finding_hides_it_in_its_own_sick() -> None:
    assert breaking(lambda check: check.code in [finding.code for finding in diagnose(check.sick)]) == []


def test_its_page_has_all_paragraphs() -> None:
    def begins(check: Check) -> list[str]:
        _, *others = page(check).split("\n\n")
        return [next((name for name in PARAGRAPHS if text.startswith(name)), text) for text in others]

    assert breaking(lambda check: begins(check) == PARAGRAPHS) == []


def test_its_page_links_to_where_one_can_read_on() -> None:
    assert breaking(lambda check: re.search(r"https://\S+", page(check)) is not None) == []


def test_its_page_calls_other_problems_by_their_names() -> None:
    def is_right(code: str, name: str) -> bool:
        return code in NAMES and (not name or NAMES[code] == name)

    named = re.compile(r"\b(AF\d{3})(?:\s([a-z]+(?:-[a-z]+)+))?")
    assert breaking(lambda check: all(is_right(*found) for found in named.findall(page(check)))) == []


def test_its_examples_survive_being_saved() -> None:
    assert breaking(lambda check: Facts.from_json(check.sick.to_json()) == check.sick) == []
    assert breaking(lambda check: Facts.from_json(check.healthy.to_json()) == check.healthy) == []


def test_its_finding_says_what_where_why_and_what_to_do() -> None:
    def is_whole(finding: Finding) -> bool:
        names_something = finding.where is not None or re.search(r"\w\.\w|\w=\w|/dev/shm|\d", finding.why) is not None
        return bool(finding.what and finding.why and finding.fix) and names_something

    assert breaking(lambda check: all(is_whole(finding) for finding in check.examine(check.sick))) == []


def test_it_names_known_rivals_only_and_never_itself() -> None:
    def is_right(finding: Finding) -> bool:
        return set(finding.rivals) <= NAMES.keys() - {finding.code} and len(finding.rivals) <= 2

    assert breaking(lambda check: all(is_right(finding) for finding in check.examine(check.sick))) == []


def test_who_is_sure_names_no_rivals() -> None:
    def is_right(finding: Finding) -> bool:
        return finding.weight is Weight.POSSIBLE or not finding.rivals

    assert breaking(lambda check: all(is_right(finding) for finding in check.examine(check.sick))) == []


def test_nothing_unfilled_is_left_in_its_texts() -> None:
    """But for {script}, which the renderer fills in, and f-strings in code to paste."""

    def is_filled(text: str) -> bool:
        plain = re.sub(r'f"[^"]*"', "", text).replace("{script}", "")
        return not re.search(r"[{}]|\b(at|of|by|sample|worker|pid) None\b", plain)

    def texts_of(finding: Finding) -> list[str]:
        return [finding.what, finding.why, *finding.fix, *finding.evidence, finding.decide or ""]

    def is_kept(check: Check) -> bool:
        return all(is_filled(text) for finding in check.examine(check.sick) for text in texts_of(finding))

    assert breaking(is_kept) == []


def test_half_of_what_a_check_needs_does_not_make_it_fail() -> None:
    """Each part of its sick facts left out once."""
    for check in CHECKS:
        for name in ("machine", "source", "run", "loaders", "trials", "processes"):
            diagnose(replace(check.sick, **{name: getattr(Facts(), name)}))
