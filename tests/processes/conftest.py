"""Every test of real workers runs on each of our stems."""

from collections.abc import Iterator

import pytest

from drop_in.harness import SELFTEST, Way, our_way, tidy_up


@pytest.fixture(params=["grown", "clean"])
def way(request: pytest.FixtureRequest) -> Way:
    return our_way(request.param)


@pytest.fixture(autouse=True)
def torch_is_tidied_up(nothing_outlives_the_test: None) -> Iterator[None]:
    yield
    if SELFTEST:
        tidy_up()
