"""AF904: settings and versions that do not do what people expect."""

import pytest

from antifreeze.doctor.checks.bad_combination import bad_combination
from antifreeze.doctor.facts import Facts, Loader, Machine
from antifreeze.doctor.finding import Weight

VERSIONS = {"python": "3.11.7", "torch": "2.13.0+cpu", "tokenizers": "0.23.3", "opencv-python-headless": "5.0.0.93"}


def facts(
    settings: dict[str, str], versions: dict[str, str] = VERSIONS, start_method: str = "fork", loader: str | None = None
) -> Facts:
    machine = Machine(cpus=8, usable_cpus=8, start_method=start_method, versions=versions, thread_settings=settings)
    loaders = (Loader(number=0, num_workers=2, start_method=loader),) if loader else ()
    return Facts(machine=machine, loaders=loaders)


@pytest.mark.parametrize(
    ("target", "word"),
    [
        (facts({"TOKENIZERS_PARALLELISM": "true"}), "TOKENIZERS_PARALLELISM=true"),
        (facts({"OPENCV_OPENMP_NUM_THREADS": "1"}), "OPENCV_OPENMP_NUM_THREADS"),
        (facts({}, start_method="forkserver"), "forkserver"),
        (facts({}, versions={"torch": "2.4.1"}), "torch 2.4.1"),
        (facts({}, versions={"torch": "1.13.1+cu117"}), "torch 1.13.1+cu117"),
    ],
)
def test_each_combination_is_named_and_no_more_than_possible(target: Facts, word: str) -> None:
    (finding,) = bad_combination.examine(target)
    assert word in finding.why
    assert finding.weight is Weight.POSSIBLE


@pytest.mark.parametrize(
    "target",
    [
        Facts(),
        facts({}),
        facts({"TOKENIZERS_PARALLELISM": "false"}),
        facts({"TOKENIZERS_PARALLELISM": "true"}, versions={"torch": "2.13.0"}),
        facts({"TOKENIZERS_PARALLELISM": "true"}, loader="spawn"),
        facts({"OPENCV_FOR_THREADS_NUM": "1"}),
        facts({"OPENCV_OPENMP_NUM_THREADS": "1"}, versions={"torch": "2.13.0"}),
        facts({}, start_method="forkserver", loader="forkserver"),
        facts({}, versions={"torch": "2.6.0"}),
        facts({}, versions={"torch": "3.0.0a0+git1"}),
        facts({}, versions={"torch": "unknown"}),
    ],
)
def test_what_is_harmless_is_not_named(target: Facts) -> None:
    assert not bad_combination.examine(target)
