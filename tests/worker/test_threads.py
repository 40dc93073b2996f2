"""How many threads the pools of native libraries get."""

from types import SimpleNamespace
from typing import Any

import pytest

from antifreeze.engine.worker import threads
from antifreeze.engine.worker.threads import asked, threads_of_pool


@pytest.mark.parametrize(
    ("current", "limit", "expected"), [(8, 1, 1), (8, 4, 4), (2, 4, 2), (8, None, 8), (1, 1, 1), (1, None, 1)]
)
def test_a_pool_is_limited_and_never_raised(current: int, limit: int | None, expected: int) -> None:
    found = threads_of_pool(current, wanted=None, wanted_at_start=None, limit=limit, processors=16)
    assert found == expected


@pytest.mark.parametrize("limit", [None, 1, 4])
def test_a_number_of_the_user_stands(limit: int | None) -> None:
    assert threads_of_pool(6, wanted=6, wanted_at_start=6, limit=limit, processors=16) == 6


@pytest.mark.parametrize("limit", [None, 1, 4])
def test_a_number_that_the_program_has_set_after_the_start_stands_beside_one_of_the_user(limit: int | None) -> None:
    assert threads_of_pool(3, wanted=6, wanted_at_start=6, limit=limit, processors=16) == 3


@pytest.mark.parametrize(
    ("wanted", "limit", "expected"), [(None, 1, 1), (None, 4, 4), (None, None, 16), (6, 1, 6), (6, None, 6), (1, 4, 1)]
)
def test_what_was_loaded_with_one_thread_in_a_clean_process_gets_what_it_would_have_had(
    wanted: int | None, limit: int | None, expected: int
) -> None:
    assert threads_of_pool(1, wanted=wanted, wanted_at_start=1, limit=limit, processors=16) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"OMP_NUM_THREADS": "2"}, 2),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"OMP_NUM_THREADS": ""}, None),
        ({"OMP_NUM_THREADS": "many"}, None),
        ({"MKL_NUM_THREADS": "3", "OMP_NUM_THREADS": "2"}, 3),
        ({"OPENBLAS_NUM_THREADS": "3"}, None),
    ],
)
def test_the_first_variable_that_a_library_knows_counts(environment: dict[str, str], expected: int | None) -> None:
    assert asked(("MKL_NUM_THREADS", "OMP_NUM_THREADS"), environment) == expected


@pytest.mark.parametrize("package", threads._PACKAGES)
@pytest.mark.parametrize(("own", "expected"), [(8, [2]), (2, []), (1, [])])
def test_a_package_with_a_number_of_its_own_is_told_if_it_has_more(package: Any, own: int, expected: list[int]) -> None:
    told: list[int] = []
    module: Any = SimpleNamespace(**{package.get: lambda: own, package.set: told.append})
    threads._cap_package(package, 2, module)
    assert told == expected
