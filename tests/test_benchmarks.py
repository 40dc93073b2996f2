"""The benchmarks themselves: what is pure about them, and one run from end to end. Figures come from `make bench`."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from antifreeze import DataLoader as OurDataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import benchmark_page as page
import datasets
import report
from datasets import PackedTexts, Texts
from engines import AGAIN, ENGINES, INLINE, OURS, PEERS, TORCH
from judge import interval, judge
from measure import ReadingFailed, require_engine
from reading import Reading, checksum
from run import Course, compare, order_of
from workloads import GIB, WORKLOADS, AtLeast, workload_named

FACTS = report.Facts(
    cores=2,
    processor="a processor",
    memory_gib=4,
    kernel="6.1",
    python="3.11.7",
    versions={"torch": "2.13.0"},
    commit="abc",
    workers=2,
    prefetch_factor=2,
    is_self_test=False,
)
CALL = report.Call("2026-01-01T00:00:00", 0.1, 7, ("ints",))


def rounds_of(figure: str, *, torch: float, ours: float, name: str = OURS, **extra: float) -> list[dict[str, Reading]]:
    return [{TORCH: Reading({figure: torch}, 1, extra), name: Reading({figure: ours}, 1, extra)}] * 7


def passes(workload: str, figure: str, *, torch: float, ours: float, cores: int = 2, **extra: float) -> bool | None:
    rounds = rounds_of(figure, torch=torch, ours=ours, **extra)
    return judge(workload_named(workload), figure, rounds, cores=cores).verdict.passed


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # Ranks from tables of the sign test: 7 values need all of them, 9 may drop one on each side, 20 five.
    [(7, 0, 6), (9, 1, 7), (20, 5, 14)],
)
def test_the_interval_is_that_of_the_sign_test(count: int, low: int, high: int) -> None:
    found = interval([float(value) for value in reversed(range(count))])
    assert (found.low, found.median, found.high) == (low, (count - 1) / 2, high)


@pytest.mark.parametrize(
    ("workload", "on_two_cores", "on_sixteen"),
    [("float32_38mb", 2.5, 2.5), ("uint8_38mb", 2.5, 2.5), ("ints", 5.0, 12.0), ("dict_of_ten", 8.0, 15.0)],
)
def test_a_rate_passes_when_its_median_reaches_the_floor(workload: str, on_two_cores: float, on_sixteen: float) -> None:
    for cores, floor in ((2, on_two_cores), (8, on_two_cores), (16, on_sixteen)):
        assert passes(workload, "rate", torch=1.0, ours=floor, cores=cores)
        assert not passes(workload, "rate", torch=1.0, ours=floor * 0.99, cores=cores)


def test_decoding_must_be_as_fast_as_with_torch() -> None:
    workload = workload_named("jpeg")

    def passed(*ratios: float) -> bool | None:
        rounds = [{TORCH: Reading({"rate": 1.0}, 1, {}), OURS: Reading({"rate": ratio}, 1, {})} for ratio in ratios]
        return judge(workload, "rate", rounds, cores=2).verdict.passed

    assert passed(0.96, 0.97, 0.98, 0.98, 0.99, 0.99, 1.0)
    assert not passed(0.96, 0.97, 0.98, 0.98, 0.99, 0.99, 0.99)  # the interval does not reach 1
    assert not passed(0.95, 0.96, 0.96, 0.96, 0.99, 0.99, 1.1)  # the median is too low


@pytest.mark.parametrize("workload", ["paths_1m", "dicts_860k"])
def test_a_first_batch_passes_when_it_is_late_by_no_more_than_its_allowance(workload: str) -> None:
    assert passes(workload, "first_batch", torch=1.0, ours=1.09)
    assert not passes(workload, "first_batch", torch=1.0, ours=1.11)


def test_a_large_array_must_start_fast_and_be_in_memory_once() -> None:
    assert passes("array_1gib_spawn", "first_batch", torch=5.0, ours=1.0)
    assert not passes("array_1gib_spawn", "first_batch", torch=4.9, ours=1.0)
    assert passes("array_1gib_spawn", "memory", torch=5.0 * GIB, ours=1.5 * GIB, bare_bytes=0.5 * GIB)
    assert not passes("array_1gib_spawn", "memory", torch=5.0 * GIB, ours=1.6 * GIB, bare_bytes=0.5 * GIB)


def test_memory_must_not_grow_by_more_than_a_twentieth_whatever_torch_does() -> None:
    assert passes("texts_2m", "growth", torch=3.0, ours=1.05)
    assert not passes("texts_2m", "growth", torch=3.0, ours=1.06)


@pytest.mark.parametrize("figure", ["send", "receive"])
def test_dicts_must_cross_at_four_fifths_of_the_speed_of_pickle(figure: str) -> None:
    assert passes("dicts_860k_crossing", figure, torch=0.8, ours=1.0)
    assert not passes("dicts_860k_crossing", figure, torch=0.79, ours=1.0)


def test_packed_texts_are_the_texts() -> None:
    plain, packed = (kind.__new__(kind) for kind in (Texts, PackedTexts))
    for dataset in (plain, packed):
        dataset.count = 1000
        dataset.__init__()  # type: ignore[misc]
    assert isinstance(plain.texts, list) and not isinstance(packed.texts, list)
    assert [plain[index] for index in range(1000)] == [packed[index] for index in range(1000)]
    assert len({plain[index] for index in range(1000)}) == 1000  # every one has its turn


@pytest.mark.parametrize("name", ["stream_of_ints", "stream_of_dicts"])
def test_the_batches_of_a_stream_are_those_of_its_source_with_workers_and_without(name: str) -> None:
    workload = workload_named(name)
    dataset = getattr(datasets, workload.dataset)()
    loaders = [
        DataLoader(dataset, batch_size=workload.batch_size),
        OurDataLoader(dataset, batch_size=workload.batch_size, num_workers=3, multiprocessing_context="fork"),
    ]
    for loader in loaders:
        for number, batch in enumerate(itertools.islice(loader, 8)):
            indices = range(number * workload.batch_size, (number + 1) * workload.batch_size)
            assert checksum(batch, 0) == checksum(dataset.make_again(indices, ()), 0)
    assert not workload.goals and {"spdl", "grain"} == set(workload.left_out)


@pytest.mark.long
def test_pinned_batches_are_measured_only_where_there_is_an_accelerator() -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is one here")
    command = [sys.executable, str(report.ROOT / "benchmarks" / "pinned.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stdout) == (2, "there is no accelerator here\n")


def test_fewer_seconds_are_better_and_fewer_batches_are_worse() -> None:
    slow = judge(workload_named("text"), "rate", rounds_of("rate", torch=2.0, ours=1.0), cores=2)
    fast = judge(workload_named("paths_1m"), "next_epoch", rounds_of("next_epoch", torch=2.0, ours=1.0), cores=2)
    assert slow.seen[OURS].ratio == interval([0.5] * 7) and slow.verdict.is_slower and slow.verdict.passed is None
    assert fast.seen[OURS].ratio == interval([2.0] * 7) and not fast.verdict.is_slower


def test_an_engine_that_failed_is_not_judged_by_what_it_did_before() -> None:
    rounds = rounds_of("rate", torch=1.0, ours=100.0)
    result = judge(workload_named("text"), "rate", rounds, cores=2, absent={OURS: "failed: it crashed"})
    assert OURS not in result.seen and result.verdict.passed is False


def test_an_engine_against_itself_must_come_out_even() -> None:
    for figure, workload in (("rate", "ints"), ("first_batch", "paths_1m")):

        def passed(torch: float, ours: float, figure: str = figure, workload: str = workload) -> bool | None:
            rounds = rounds_of(figure, torch=torch, ours=ours, name=AGAIN)
            return judge(workload_named(workload), figure, rounds, cores=2, ours=AGAIN).verdict.passed

        assert passed(1.0, 1.0)
        assert not passed(2.0, 1.0)
    assert passed(0.02, 0.01)  # twice as long, which is nothing to speak of in hundredths of a second


def test_everybody_takes_part_in_every_round_and_takes_turns() -> None:
    engines = [TORCH, OURS, INLINE, *PEERS]
    orders = [order_of(engines, number=number, ours=OURS) for number in range(8)]
    assert all(sorted(order) == sorted(engines) for order in orders)
    assert [order[:2] for order in orders[:2]] == [[TORCH, OURS], [OURS, TORCH]]
    assert {order[2] for order in orders} == {INLINE, *PEERS}


def test_whoever_delivers_other_bytes_than_torch_is_out() -> None:
    readings = {TORCH: Reading({}, 1, {}), OURS: Reading({}, 1, {}), "spdl": Reading({}, 2, {})}
    course = Course([readings])
    compare(course, workload_named("ints"))
    assert list(course.absent) == ["spdl"]


def test_bytes_that_hang_on_random_numbers_of_its_own_do_not_put_an_engine_out() -> None:
    readings = {TORCH: Reading({}, 1, {}), OURS: Reading({}, 2, {}), "spdl": Reading({}, 2, {})}
    course = Course([readings])
    compare(course, workload_named("jpeg"))
    assert list(course.absent) == [OURS]
    assert "SPDL" in course.notes[0]


def test_a_reading_counts_only_if_it_was_taken_on_its_engine() -> None:
    ours, fallen = '{"engine": "antifreeze"}\n', '{"engine": "torch"}\n'
    require_engine(OURS, ours + ours)
    require_engine(TORCH, "")
    for engine, usage in ((OURS, ""), (OURS, fallen), (OURS, ours + fallen), (TORCH, ours), ("grain", ours)):
        with pytest.raises(ReadingFailed):
            require_engine(engine, usage)


def test_every_workload_says_why_an_engine_is_left_out() -> None:
    for workload in WORKLOADS:
        assert set(workload.left_out) <= set(ENGINES) and all(workload.left_out.values())
        assert set(workload.goals) <= set(workload.figures)
        assert {TORCH, OURS}.isdisjoint(workload.left_out)


def test_an_engine_that_is_not_installed_is_left_out_and_that_is_said() -> None:
    missing = replace(ENGINES["grain"], module="no_such_module.inside")
    assert missing.why_not(workload_named("ints")) == "grain is not installed"
    assert ENGINES[TORCH].why_not(workload_named("ints")) is None


def test_an_engine_that_keeps_no_workers_has_no_figure_for_kept_ones() -> None:
    assert ENGINES["spdl"].figures_of(workload_named("paths_1m")) == ("first_batch", "next_epoch")
    assert ENGINES["spdl"].why_not(workload_named("train_and_validate_kept")) is not None
    assert "next_epoch_kept" in ENGINES[OURS].figures_of(workload_named("paths_1m"))


def test_floors_of_many_cores_default_to_those_of_few() -> None:
    assert AtLeast(2.0).floor_for(64) == 2.0


# --- the report


def report_of(*workloads: str, ratio: float = 6.0, facts: report.Facts = FACTS) -> report.Report:
    rounds = rounds_of("rate", torch=1.0, ours=ratio)
    results = tuple(judge(workload_named(name), "rate", rounds, cores=2) for name in workloads)
    return report.Report(facts, (replace(CALL, workloads=workloads),), results)


def test_a_run_adds_its_workloads_to_those_of_earlier_runs() -> None:
    merged = report.merge(report_of("ints", "text"), report_of("float32_38mb", "ints", ratio=7.0))
    assert [result.workload for result in merged.results] == ["float32_38mb", "ints", "text"]  # as in the table
    assert [result.seen[OURS].median for result in merged.results] == [7.0, 7.0, 6.0]
    assert len(merged.calls) == 2


@pytest.mark.parametrize("change", [{"cores": 16}, {"commit": "def"}, {"versions": {}}, {"workers": 4}])
def test_runs_on_different_things_do_not_mix(change: dict[str, object]) -> None:
    with pytest.raises(report.Mismatch, match=next(iter(change))):
        report.merge(report_of("ints"), report_of("text", facts=replace(FACTS, **change)))


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    original = report_of("ints", "jpeg")
    report.write(original, tmp_path / "report.json")
    assert report.read(tmp_path / "report.json") == original


# --- the page


def test_the_page_shows_what_there_is_and_where_we_lose() -> None:
    text = page.page({"small": report_of("ints", "text", ratio=0.5)})
    assert "## 2 cores, 2 workers" in text and "benchmarks/small.svg" in text
    assert "**0.50 × [0.50, 0.50]**" in text and "at least 5 ×: **missed**" in text and "slower than torch" in text
    assert "- single ints, 64 a batch: ours 0.5/s; torch 1.0/s." in text
    assert "Nowhere in this run." in page.page({"small": report_of("ints")})
    assert "No figures have been taken yet." in page.page({})


def test_the_committed_page_is_what_the_committed_figures_say() -> None:
    assert page.PAGE.read_text() == page.page(page.reports_in(page.FOLDER)), "make bench-page"


def test_the_committed_charts_are_what_the_committed_figures_say() -> None:
    try:
        pin = f"matplotlib=={metadata.version('matplotlib')}"
    except metadata.PackageNotFoundError:
        pytest.skip("charts need the dependency group `bench`")
    if pin not in (report.ROOT / "constraints.txt").read_text():
        pytest.skip(f"{pin} may draw otherwise than the one that charts are drawn with")
    # In a process of its own: matplotlib keeps fonts open.
    command = [sys.executable, str(report.ROOT / "benchmarks" / "benchmark_page.py"), "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


# --- from end to end


def run_benchmark(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = report.ROOT / "benchmarks" / "run.py"
    return subprocess.run(
        [sys.executable, str(script), "--only", "text", "--pairs", "1", "--seconds", "0.05", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.long
def test_a_run_measures_our_engine_and_says_what_it_saw(tmp_path: Path) -> None:
    ended = run_benchmark("--engines", "antifreeze,inline", "--json", str(tmp_path / "a.json"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (result,) = report.read(tmp_path / "a.json").results
    assert set(result.seen) == {TORCH, OURS, INLINE}
    assert result.absent == dict.fromkeys(PEERS, "not asked for")
    assert result.seen[OURS].median > 0 and result.seen[OURS].ratio is not None
    assert "antifreeze" in ended.stdout


def test_a_run_fails_when_torch_is_behind_our_name(tmp_path: Path) -> None:
    (tmp_path / "antifreeze").mkdir()
    for name in ("__init__", "loader"):
        (tmp_path / "antifreeze" / f"{name}.py").write_text("from torch.utils.data import DataLoader\n")
    ended = run_benchmark("--engines", "antifreeze", PYTHONPATH=str(tmp_path))
    assert ended.returncode == 1
    assert "this was to measure antifreeze, but its loaders ran on nothing" in ended.stdout
