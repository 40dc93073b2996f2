"""Every problem has a page, and it is found by code and by name."""

import pytest

from antifreeze.codes import NAMES
from antifreeze.doctor.pages import FAMILIES, TITLES, code_of, page_of, read_page


@pytest.mark.long(but=33)
@pytest.mark.parametrize("code", NAMES)
def test_a_page_says_all_that_users_ask(code: str) -> None:
    page = read_page(code)
    assert page.summary.endswith("."), "the problem in one sentence"
    assert tuple(page.sections) == TITLES
    assert all(page.sections.values())
    assert page.family in FAMILIES.values()


def test_a_paragraph_without_a_title_belongs_to_the_one_before() -> None:
    page = page_of("AF204", '"""It\nis full.\n\nWhat happens: one.\n\ntwo: three.\n\nRead on: there\n"""\n')
    assert page.summary == "It is full."
    assert page.sections == {"What happens": "one.\n\ntwo: three.", "Read on": "there"}


@pytest.mark.parametrize("word", ["AF204", "af204", "shm-too-small", "SHM_TOO_SMALL"])
def test_a_problem_is_found_by_code_and_by_name_in_any_case(word: str) -> None:
    assert code_of(word) == "AF204"


def test_what_is_no_problem_is_not_found() -> None:
    assert code_of("AF999") is None
