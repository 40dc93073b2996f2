"""Variants of known problems, as strangers wrote them: what distinguishes them from their neighbours."""

from dataclasses import replace

from antifreeze.doctor.advice import Point, recommended
from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.facts import (
    Assignment,
    DatasetClass,
    Death,
    Facts,
    Held,
    Loader,
    LoaderCall,
    LoaderLoop,
    Machine,
    Outcome,
    Place,
    Raised,
    Run,
    Sight,
    Source,
    Stuck,
    Trial,
    WorkerMemory,
)
from antifreeze.doctor.finding import Finding, Weight

MB = 1 << 20
LOADER = Loader(
    number=0,
    num_workers=2,
    start_method="fork",
    samples=24,
    batches=12,
    dataset="Rows",
    dataset_at=Place("train.py", 6),
    built_at=Place("train.py", 30),
)


def written(outcome: Outcome, **known: object) -> Trial:
    return replace(Trial(loader=0, engine="torch", workers=2, outcome=outcome, is_as_written=True), **known)  # type: ignore[arg-type]


def found(facts: Facts) -> dict[str, Finding]:
    return {finding.code: finding for finding in diagnose(facts)}


# --- hangs

LOCKED = Place("train.py", 26, "__getitem__", "with self.cache_lock:")
WAITING = Stuck(
    role="worker",
    worker=1,
    pid=7,
    sample="5",
    seconds=12,
    typical_s=0.01,
    frames=(LOCKED,),
    place=LOCKED,
    stage="fetch",
    waits_in="lock",
    state="S",
)
LOCK = Held(path="dataset.cache_lock", kind="lock", what="a threading.Lock", place=Place("train.py", 10))


def hanging(lock: Held, *others: Trial, stuck: Stuck = WAITING) -> Facts:
    return Facts(loaders=(replace(LOADER, held=(lock,)),), trials=(written(Outcome.HANG, stuck=(stuck,)), *others))


def alone(stuck: Stuck = WAITING) -> Trial:
    trainer = replace(stuck, role="trainer", worker=None)
    return Trial(loader=0, engine="torch", workers=0, outcome=Outcome.HANG, stuck=(trainer,))


def test_a_lock_that_hangs_the_program_without_workers_too_was_not_lost_in_a_fork() -> None:
    assert "AF104" in found(hanging(LOCK))
    codes = found(hanging(LOCK, alone()))
    assert "AF104" not in codes
    assert codes["AF103"].weight is Weight.CERTAIN
    assert "its own process" in codes["AF103"].why


def test_a_lock_that_was_seen_locked_before_the_fork_is_inherited_all_the_same() -> None:
    assert "AF104" in found(hanging(replace(LOCK, is_deadly=True), alone()))


def test_a_sample_that_hangs_every_time_is_not_cured_by_another_worker() -> None:
    socket = replace(WAITING, waits_in="socket")
    assert found(hanging(LOCK, stuck=socket))["AF103"].fix[0] == "antifreeze run {script}"
    every_time = found(hanging(LOCK, alone(socket), stuck=socket))["AF103"].fix
    assert "timeout" in every_time[0]
    assert "--on-error skip" in every_time[1]


def test_workers_that_wait_for_their_own_threads_at_the_end_are_a_slow_shutdown_and_no_lost_lock() -> None:
    shutdown = Place("/usr/lib/python3.11/threading.py", 1590, "_shutdown", "lock.acquire()")
    stuck = replace(WAITING, sample=None, stage="left", frames=(shutdown, LOCKED))
    codes = found(hanging(LOCK, stuck=stuck))
    assert "AF104" not in codes
    assert "daemon=True" in codes["AF405"].fix[0]


def test_workers_that_live_on_are_told_beside_a_hang_only_where_somebody_kills_the_trainer() -> None:
    socket = replace(WAITING, waits_in="socket")
    facts = hanging(LOCK, stuck=socket)
    facts = replace(facts, trials=(replace(facts.trials[0], orphans=(socket,)),))
    run = Run(command="train.py", outcome=Outcome.OK, is_trainer_a_child=False)
    assert found(replace(facts, run=run)).keys() == {"AF103"}
    assert found(replace(facts, run=replace(run, is_trainer_a_child=True))).keys() == {"AF103", "AF106"}


# --- data


def failing(loader: Loader = LOADER, *, none: tuple[str, ...] = (), **known: object) -> Facts:
    raised = replace(Raised(type="TypeError", message="'NoneType' object …", stage="collate"), **known)  # type: ignore[arg-type]
    return Facts(loaders=(loader,), trials=(written(Outcome.ERROR, raised=raised, none_samples=none),))


def test_none_in_a_part_of_a_sample_is_a_sample_that_does_not_stack() -> None:
    facts = failing(sample="9", culprit="['box'] is None, the others a list of 4")
    without = failing().trials[0]  # where nobody looked for the odd one
    codes = found(replace(facts, trials=(*facts.trials, replace(without, workers=0, is_as_written=False))))
    assert "AF329" not in codes
    assert "['box'] is None" in codes["AF326"].why


def test_a_batch_of_none_only_is_told_from_one_none_that_collate_drops() -> None:
    loader = replace(LOADER, has_default_collate=False)
    finding = found(failing(loader, none=("3", "8", "9"), batch=("8", "9"), type="IndexError", message="list index"))[
        "AF329"
    ]
    assert "every sample of a batch (8, 9)" in finding.what
    assert "if batch is None: continue" in finding.fix[1]


def test_a_descriptor_that_is_kept_as_a_number_is_an_open_file_unless_it_is_read_by_place() -> None:
    for used, codes in ((("os.lseek", "os.read"), {"AF307"}), (("os.pread",), set())):
        opened = Assignment(name="fd", value="os.open", place=Place("train.py", 8), used_as=used)
        dataset = DatasetClass(name="Rows", place=Place("train.py", 6), assignments=(opened,))
        call = LoaderCall(place=Place("train.py", 30), workers=2, datasets=("Rows",))
        findings = found(Facts(source=Source(script="train.py", datasets=(dataset,), loaders=(call,))))
        assert findings.keys() == codes
        assert all("os.pread(self.fd, count, offset)" in finding.fix[2] for finding in findings.values())


def test_an_index_of_numpys_or_torchs_is_an_index() -> None:
    for index in ("24", "np.int64(24)", "tensor(24)", "-25"):
        assert "AF324" in found(failing(type="IndexError", message="out of bounds", stage="fetch", sample=index))
    assert "AF324" not in found(failing(type="IndexError", message="out", stage="fetch", sample="np.int64(23)"))


def test_who_exits_every_time_is_not_cured_by_another_worker() -> None:
    death = Death(worker=1, pid=7, exitcode=3, how="sys.exit", place=Place("train.py", 14))
    crash = written(Outcome.CRASH, batches=2, deaths=(death,))
    again = Trial(loader=0, engine="torch", workers=0, outcome=Outcome.CRASH, deaths=(replace(death, worker=-1),))
    assert "antifreeze run {script}" in found(Facts(loaders=(LOADER,), trials=(crash,)))["AF314"].fix
    assert "antifreeze run {script}" not in found(Facts(loaders=(LOADER,), trials=(crash, again)))["AF314"].fix


def test_the_cure_of_a_copied_generator_is_one_of_its_kind() -> None:
    for what, cure in (
        ("a torch._C.Generator", "torch.Generator().manual_seed("),
        ("a random.Random", " random.Random("),
        ("a numpy.random.mtrand.RandomState", "numpy.random.RandomState("),
        ("a numpy Generator", "numpy.random.default_rng("),
    ):
        rng = Held(path="dataset.rng", kind="generator", what=what)
        facts = Facts(
            loaders=(replace(LOADER, held=(rng,)),), trials=(written(Outcome.OK, same_draws=("dataset.rng",)),)
        )
        assert cure in found(facts)["AF501"].fix[1]


# --- memory and speed


def test_a_list_that_every_sample_makes_longer_is_named() -> None:
    memory = (WorkerMemory(worker=0, first_bytes=10 * MB, last_bytes=600 * MB, samples=2000),)
    line = Place("train.py", 10, "__getitem__", "self.history.append(x)")
    for text, weight in ((line.text, Weight.LIKELY), ("self.cache[i] = x", Weight.POSSIBLE)):
        sight = Sight(kind="changes-self", what="self.history", place=replace(line, text=text))
        source = Source(
            script="train.py", datasets=(DatasetClass(name="Rows", place=Place("train.py", 6), sights=(sight,)),)
        )
        facts = Facts(source=source, loaders=(LOADER,), trials=(written(Outcome.OK, memory=memory),))
        assert found(facts)["AF207"].weight is weight


def test_a_loader_that_is_made_anew_in_every_epoch_restarts_its_workers() -> None:
    for text, weight in (("for epoch in range(10):", Weight.LIKELY), ("for fold in folds:", Weight.POSSIBLE)):
        call = LoaderCall(place=Place("train.py", 30), workers=2, start_method="spawn", is_in_loop=True)
        loop = LoaderLoop(place=call.place, loader=call.place, epochs=Place("train.py", 29, "", text))
        slow = written(Outcome.OK, batches=12, samples=24, seconds=3.2, first_batch_s=3.0)
        facts = Facts(
            source=Source(script="train.py", loaders=(call,), loops=(loop,)),
            loaders=(replace(LOADER, start_method="spawn"),),
            trials=(slow,),
        )
        assert found(facts)["AF401"].weight is weight
        assert "before the loop" in found(facts)["AF401"].fix[0]


def test_a_measurement_of_milliseconds_does_not_tell_that_fewer_workers_are_as_fast() -> None:
    call = LoaderCall(place=Place("train.py", 30), workers=4)
    for seconds, weight in ((0.3, Weight.POSSIBLE), (5.0, Weight.LIKELY)):
        timed = {"batches": 12, "samples": 24, "seconds": seconds, "first_batch_s": 0.1}
        fewer = Trial(loader=0, engine="torch", workers=2, outcome=Outcome.OK, **timed)  # type: ignore[arg-type]
        facts = Facts(
            machine=Machine(cpus=2, usable_cpus=2),
            source=Source(script="train.py", loaders=(call,)),
            loaders=(replace(LOADER, num_workers=4),),
            trials=(written(Outcome.OK, **{**timed, "workers": 4}), fewer),
        )
        assert found(facts)["AF404"].weight is weight


def test_more_workers_than_processors_that_were_faster_are_not_said_to_gain_nothing() -> None:
    points = [
        Point(engine="torch", workers=workers, samples_per_s=per_s) for workers, per_s in ((1, 32), (2, 58), (16, 153))
    ]
    number, why = recommended(points, Machine(cpus=2, usable_cpus=2))
    assert number == 2
    assert "16 gave 153" in why


def streamed(
    counts: dict[int, int], *, has_asked: bool = True, batch_size: int | None = 8, drop_last: bool = False
) -> Facts:
    trials = [
        Trial(
            loader=0,
            engine="torch",
            workers=workers,
            outcome=Outcome.OK,
            is_as_written=workers == 4,
            is_whole_epoch=True,
            samples=count,
            has_asked_for_worker_info=has_asked if workers else None,
        )
        for workers, count in counts.items()
    ]
    loader = replace(LOADER, num_workers=4, is_iterable=True, batch_size=batch_size, drop_last=drop_last)
    return Facts(loaders=(loader,), trials=tuple(trials))


def test_shares_of_a_stream_that_do_not_add_up_lose_samples() -> None:
    assert "3 of 103 samples never come" in found(streamed({4: 100, 0: 103, 1: 103}))["AF502"].what
    assert "AF502" not in found(streamed({4: 103, 0: 103, 1: 103}))


def test_batches_that_workers_make_or_drop_themselves_are_no_samples_lost() -> None:
    assert "AF502" not in found(streamed({4: 106, 0: 103, 1: 103}, batch_size=None))
    assert "AF502" not in found(streamed({4: 96, 0: 103, 1: 103}, drop_last=True))


def test_a_stream_whose_length_is_not_always_the_same_is_not_said_to_lose_samples() -> None:
    assert "AF502" not in found(streamed({4: 100, 0: 97, 1: 103}))
    assert "AF502" not in found(streamed({4: 100, 0: 103}))


def test_our_engine_is_not_the_cure_of_what_it_was_seen_to_fail_at() -> None:
    for outcome, place in ((Outcome.OK, 0), (Outcome.HANG, -1), (Outcome.ERROR, None)):
        ours = Trial(loader=0, engine="antifreeze", workers=2, outcome=outcome)
        fix = found(hanging(LOCK, ours))["AF104"].fix
        assert fix[place] == "antifreeze run {script}" if place is not None else "antifreeze run {script}" not in fix


def test_a_short_epoch_tells_nothing_about_the_speed_of_loading() -> None:
    slow = written(Outcome.OK, batches=12, samples=24, seconds=0.9, first_batch_s=0.1)
    fast = Trial(loader=0, engine="antifreeze", workers=2, outcome=Outcome.OK, batches=12, samples=24, seconds=0.2)
    assert "AF406" not in found(Facts(loaders=(LOADER,), trials=(slow, fast)))
    longer = replace(slow, batches=24, samples=48, seconds=1.8)
    assert "AF406" in found(Facts(loaders=(LOADER,), trials=(longer, fast)))


def test_a_limit_of_open_files_that_the_program_sets_itself_is_the_one_that_counts() -> None:
    loop = LoaderLoop(place=Place("train.py", 31), loader=LOADER.built_at, kept=(Place("train.py", 32),))
    machine = Machine(cpus=2, usable_cpus=2, descriptors_soft=65536, descriptors_hard=65536)
    loader = replace(LOADER, batches=1000)
    facts = Facts(machine=machine, source=Source(script="train.py", loops=(loop,)), loaders=(loader,))
    assert "AF203" not in found(facts)
    assert found(replace(facts, loaders=(replace(loader, descriptors=256),)))["AF203"].weight is Weight.LIKELY


def test_forked_workers_that_prepare_themselves_in_every_epoch_are_told() -> None:
    call = LoaderCall(place=Place("train.py", 30), workers=2)
    loop = LoaderLoop(place=Place("train.py", 32), loader=call.place, epochs=Place("train.py", 31))
    source = Source(script="train.py", loaders=(call,), loops=(loop,))
    trial = written(Outcome.OK, batches=12, samples=24, seconds=4.0, first_batch_s=3.1, is_whole_epoch=True)
    assert "AF401" not in found(Facts(source=source, loaders=(LOADER,), trials=(replace(trial, warm_up_s=0.5),)))
    facts = Facts(source=source, loaders=(LOADER,), trials=(replace(trial, warm_up_s=3.0),))
    assert found(facts)["AF401"].weight is Weight.POSSIBLE
    assert "AF401" not in found(replace(facts, loaders=(replace(LOADER, persistent_workers=True),)))
