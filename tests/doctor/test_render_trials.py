"""A trial in a line."""

from antifreeze.doctor.facts import Facts, Loader, Machine, Outcome, SlowSample, Trial, WorkerMemory
from antifreeze.doctor.render.trials import trials_of

MB = 1 << 20
TRIAL = Trial(
    loader=0,
    engine="torch",
    workers=2,
    outcome=Outcome.OK,
    is_as_written=True,
    batches=10,
    samples=80,
    seconds=2.5,
    first_batch_s=0.5,
    batch_bytes=24 * MB,
    fetch_s=1.5,
    collate_s=0.02,
    lock_share=0.4,
    memory=(WorkerMemory(worker=0, first_bytes=MB, last_bytes=30 * MB),),
    slowest=(SlowSample(sample="13", seconds=0.25),),
    non_finite=("7",),
)


def test_a_trial_says_how_fast_it_was_and_where_time_and_memory_went() -> None:
    machine = Machine(cpus=2, usable_cpus=2, shm_total_bytes=64 * MB)
    loader = Loader(number=0, num_workers=2, prefetch_factor=4)
    (said,) = trials_of(Facts(machine=machine, loaders=(loader,), trials=(TRIAL,)))
    assert said == (
        "torch, 2 workers, as written: works after 10 batches, 36 samples/s, first batch 500 ms, fetching 1.5 s, "
        "collating 20 ms, 40% of the time in locks, 30 MB for each worker alone, needs 192 MB of 64 MB in /dev/shm, "
        "slowest samples 13 250 ms, not finite: 7"
    )


def test_what_is_not_known_is_left_out() -> None:
    trial = Trial(loader=0, engine="antifreeze", workers=1, outcome=Outcome.HANG)
    assert trials_of(Facts(trials=(trial,))) == ["antifreeze, 1 worker: freezes after 0 batches"]
