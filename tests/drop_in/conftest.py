"""Every drop-in case runs on each of our stems."""

from collections.abc import Iterator

import pytest

from drop_in.harness import SELFTEST, Way, our_way, started, tidy_up


@pytest.fixture(params=["grown", "clean"])
def ours(request: pytest.FixtureRequest) -> Way:
    return our_way(request.param, test=request.node.nodeid.replace(request.param, "", 1))


@pytest.fixture(autouse=True)
def torch_is_tidied_up(nothing_outlives_the_test: None) -> Iterator[None]:
    yield
    if SELFTEST or started:
        tidy_up()
