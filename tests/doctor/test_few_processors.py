"""AF901: fewer processors than there seem to be."""

import pytest

from antifreeze.doctor.checks.few_processors import few_processors
from antifreeze.doctor.facts import Facts, Machine


def found(**known: object) -> list[str]:
    return [finding.why for finding in few_processors.examine(Facts(machine=Machine(**known)))]  # type: ignore[arg-type]


def test_a_setting_beyond_what_the_cgroup_grants_is_named() -> None:
    (why,) = found(
        cpus=64, usable_cpus=2, cpu_quota=1.5, thread_settings={"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "9"}
    )
    assert "64 processors" in why and "the time of 1.5" in why and "MKL_NUM_THREADS=9" in why
    assert "OMP" not in why


def test_openmp_without_a_setting_does_not_know_of_quotas_but_of_affinity() -> None:
    assert found(cpus=64, usable_cpus=2, cpu_quota=2.0)
    assert not found(cpus=64, usable_cpus=2)


@pytest.mark.parametrize("value", ["2", "1", "all", ""])
def test_a_setting_that_fits_or_says_no_number_is_fine(value: str) -> None:
    assert not found(cpus=64, usable_cpus=2, thread_settings={"OMP_NUM_THREADS": value})


def test_where_all_processors_are_usable_there_is_nothing_to_say() -> None:
    assert not found(cpus=8, usable_cpus=8, thread_settings={"OMP_NUM_THREADS": "64"})
    assert not few_processors.examine(Facts())
