"""The cases of the zoo as facts, written by hand as the probes should deliver them → the right diagnosis.

Runs in milliseconds what `make zoo` shows with real programs; one sheet per case, by the name of the case.
"""

from dataclasses import replace
from typing import Any

from antifreeze.doctor.facts import (
    Assignment,
    Bulk,
    DatasetClass,
    Death,
    Facts,
    Held,
    Loader,
    LoaderCall,
    LoaderLoop,
    Machine,
    NativePool,
    Obstacle,
    Outcome,
    Place,
    Raised,
    Run,
    Sight,
    Source,
    Stuck,
    Trial,
    WorkerInit,
    WorkerMemory,
)
from doctor.judging import EXPECTED, faults

MB = 1 << 20
LIB = "/usr/lib/python3.11"
SITE = f"{LIB}/site-packages"


def place(line: int, text: str = "", function: str = "__getitem__") -> Place:
    return Place("train.py", line, function, text)


def machine(**known: Any) -> Machine:
    usual: dict[str, Any] = {
        "shm_total_bytes": 8192 * MB,
        "shm_free_bytes": 8000 * MB,
        "descriptors_soft": 1024,
        "descriptors_hard": 1048576,
        "memory_available_bytes": 8192 * MB,
        "start_method": "fork",
    }
    return Machine(cpus=2, usable_cpus=2, **usual | known)


def loader(line: int, **known: Any) -> Loader:
    usual: dict[str, Any] = {
        "num_workers": 2,
        "batch_size": 2,
        "prefetch_factor": 2,
        "start_method": "fork",
        "samples": 24,
        "batches": 12,
        "dataset_at": place(20),
        "crosses": True,
    }
    return Loader(number=0, built_at=place(line), iterated_at=place(line), **usual | known)


def trial(workers: int, outcome: Outcome = Outcome.OK, *, engine: str = "torch", **known: Any) -> Trial:
    usual: dict[str, Any] = {
        "batches": 12,
        "samples": 24,
        "seconds": 0.5,
        "first_batch_s": 0.1,
        "is_whole_epoch": outcome is Outcome.OK,
        "batch_bytes": 1000,
        "batch_tensors": 2,
    }
    return Trial(loader=0, engine=engine, workers=workers, outcome=outcome, **usual | known)


def written(outcome: Outcome = Outcome.OK, *, workers: int = 2, **known: Any) -> Trial:
    return trial(workers, outcome, is_as_written=True, **known)


OTHERS = (trial(0), trial(1), trial(2, engine="antifreeze"))


def failing(raised: Raised, outcome: Outcome = Outcome.ERROR) -> tuple[Trial, ...]:
    """The same in every trial."""
    known: dict[str, Any] = {"raised": raised, "batches": 2, "samples": 4}
    return (
        written(outcome, **known),
        *(trial(workers, outcome, engine=engine, **known) for workers, engine in ((0, "torch"), (1, "torch"))),
        trial(2, Outcome.ERROR, engine="antifreeze", **known),
    )


def hanging(stuck: Stuck, **known: Any) -> Trial:
    trainer = Stuck(role="trainer", pid=100, frames=(Place(f"{SITE}/torch/utils/data/dataloader.py", 1200),))
    return written(Outcome.HANG, stuck=(stuck, trainer), batches=0, samples=0, **known)


def stuck(line: Place, *, above: tuple[Place, ...] = (), **known: Any) -> Stuck:
    usual: dict[str, Any] = {"sample": "0", "stage": "fetch", "waits_in": "lock", "state": "S", "seconds": 12.0}
    frames = (*above, line, Place(f"{SITE}/torch/utils/data/_utils/fetch.py", 52, "fetch"))
    return Stuck(role="worker", worker=0, pid=101, place=line, frames=frames, **usual | known)


def dead(exitcode: int, how: str, sample: str | None, line: Place | None, **known: Any) -> Death:
    return Death(worker=0, pid=101, exitcode=exitcode, how=how, sample=sample, place=line, **known)


def killed(death: Death, outcome: Outcome = Outcome.CRASH) -> Trial:
    said = Raised(
        type="RuntimeError", message="DataLoader worker (pid 101) is killed by signal: Killed.", stage="receive"
    )
    return written(outcome, deaths=(death,), raised=said if outcome is Outcome.CRASH else None, batches=3, samples=6)


def source(**known: Any) -> Source:
    return Source(script="train.py", **{"has_main_guard": True} | known)


def dataset(line: int, *, assignments: tuple[Assignment, ...] = (), **known: Any) -> DatasetClass:
    return DatasetClass(name="Data", place=place(line), assignments=assignments, **known)


def opened(line: int, name: str, value: str, *uses: str, used: int = 0) -> Assignment:
    return Assignment(
        name=name, value=value, place=place(line), used_at=place(used) if used else None, used_as=tuple(uses)
    )


def obstacle(path: str, what: str, line: int, **known: Any) -> Obstacle:
    return Obstacle(path=path, what=what, why=f"cannot pickle {what}", place=place(line), **known)


def not_started(line: int, one: Obstacle, method: str = "spawn", **known: Any) -> Facts:
    raised = Raised(type="PicklingError", message=one.why, stage="start")
    return Facts(
        machine=machine(),
        source=source(**known),
        loaders=(loader(line, start_method=method, obstacles=(one,)),),
        trials=(
            written(Outcome.ERROR, raised=raised, start_method=method, batches=0, samples=0),
            trial(0),
            trial(2, engine="antifreeze"),
        ),
    )


def facts(one: Loader, *trials: Trial, **known: Any) -> Facts:
    return Facts(loaders=(one,), trials=trials, **{"machine": machine()} | known)


SHM_FULL = "unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)"


def shm_full(line: int, *, total: int, batch: int, workers: int, prefetch: int) -> Facts:
    raised = Raised(type="RuntimeError", message=SHM_FULL, stage="collate", worker=0)
    return facts(
        loader(line, num_workers=workers, prefetch_factor=prefetch),
        written(Outcome.ERROR, workers=workers, raised=raised, batches=0, samples=0, batch_bytes=None),
        trial(0, batch_bytes=batch),
        trial(workers, engine="antifreeze", batch_bytes=batch),
        machine=machine(shm_total_bytes=total, shm_free_bytes=total),
    )


def kept(line: int, loop: int, *, batches: int, hard: int) -> Facts:
    text = "kept.append(batch)"
    return facts(
        loader(loop, batches=batches, samples=batches),
        written(),
        *OTHERS,
        machine=machine(descriptors_soft=256, descriptors_hard=hard),
        source=source(loops=(LoaderLoop(place=place(loop), kept=(place(line, text),)),)),
    )


def once(*trials: Trial, line: int, **known: Any) -> Facts:
    return facts(loader(line, **known), *trials, *OTHERS)


FUTURES = (Place(f"{LIB}/threading.py", 327, "wait"), Place(f"{LIB}/concurrent/futures/_base.py", 451, "result"))
SEM = (Place(f"{LIB}/multiprocessing/synchronize.py", 95, "__enter__"),)
TORCH_POOL = NativePool(library="torch", kind="openmp", threads=2, is_used=True)

SHEETS = {
    "001_shm_docker_64m": shm_full(30, total=64 * MB, batch=24 * MB, workers=2, prefetch=4),
    "003_shm_one_batch_too_big": shm_full(31, total=32 * MB, batch=48 * MB, workers=1, prefetch=1),
    "004_shm_shared_cache_bus_error": facts(
        loader(
            41, held=(Held(path="dataset.shm", kind="shared-memory", what="SharedMemory of 93 MB", place=place(27)),)
        ),
        killed(dead(-7, "SIGBUS", "43", place(34))),
        trial(0, Outcome.CRASH, deaths=(dead(-7, "SIGBUS", "43", place(34)),)),
        machine=machine(shm_total_bytes=64 * MB, shm_free_bytes=60 * MB),
    ),
    "010_fd_list_of_batches": kept(31, 30, batches=600, hard=1048576),
    "012_fd_numpy_views_kept_hard_limit": kept(33, 32, batches=400, hard=256),
    "020_spawn_lambda_transform": not_started(
        33, obstacle("dataset.transform", "the function <lambda> at train.py:33", 33)
    ),
    "021_spawn_local_dataset_class": not_started(
        32, obstacle("dataset", "an instance of build.<locals>.Local (train.py:20)", 20)
    ),
    "022_forkserver_open_file": not_started(
        38,
        obstacle("dataset.f", "an open file 'rec.bin' (mode 'rb')", 23),
        "forkserver",
        datasets=(dataset(21, assignments=(opened(23, "f", "open", "fileno", used=29),)),),
    ),
    "023_spawn_lock_in_dataset": not_started(37, obstacle("dataset.lock", "a _thread.lock", 23)),
    "024_spawn_lmdb_environment": not_started(41, obstacle("dataset.env", "a lmdb.Environment", 25)),
    "025_forkserver_generator_attribute": not_started(36, obstacle("dataset.source", "a generator", 22), "forkserver"),
    "027_spawn_h5py_file": not_started(41, obstacle("dataset.file", "a h5py.File", 26)),
    "028_spawn_lambda_collate": not_started(29, obstacle("collate_fn", "the function <lambda> at train.py:29", 29)),
    "030_spawn_class_under_main_guard": facts(
        loader(
            28,
            start_method="spawn",
            obstacles=(obstacle("dataset", "of the class Numbers (train.py:20)", 20, is_main_guard=True),),
        ),
        written(
            Outcome.CRASH,
            deaths=(dead(1, "exit", None, None),),
            stderr="AttributeError: Can't get attribute 'Numbers' on <module '__mp_main__'>",
            batches=0,
            samples=0,
            start_method="spawn",
        ),
        trial(0),
        source=source(
            datasets=(DatasetClass(name="Numbers", place=place(20), is_under_main_guard=True),),
            loaders=(
                LoaderCall(
                    place=place(28),
                    arguments={"dataset": "Numbers()"},
                    workers=2,
                    start_method="spawn",
                    datasets=("Numbers",),
                    guarded=(place(20, "class Numbers(Dataset):", "Numbers"),),
                ),
            ),
        ),
    ),
    "032_sample_cannot_be_pickled": facts(
        loader(37, has_default_collate=False),
        written(
            Outcome.HANG,
            raised=Raised(
                type="AttributeError",
                message="Can't pickle local object 'Sample.__init__.<locals>.<lambda>'",
                stage="send",
                worker=0,
                culprit="batch[0].decode (the function <lambda>)",
                culprit_at=place(24),
            ),
            stuck=(
                Stuck(role="worker", worker=0, pid=101, stage="idle", waits_in="poll", state="S"),
                Stuck(role="trainer", pid=100, waits_in="poll"),
            ),
        ),
        *OTHERS,
    ),
    "034_exception_cannot_be_pickled": facts(
        loader(44),
        *failing(
            Raised(
                type="DecodeError",
                message="frame 5 is damaged",
                stage="fetch",
                place=place(25, function="read"),
                sample="5",
                worker=0,
            ),
            Outcome.HANG,
        ),
    ),
    "040_no_main_guard_spawn": facts(
        replace(loader(29, start_method="spawn"), iterated_at=place(31)),
        written(
            Outcome.CRASH,
            deaths=(dead(1, "exit", None, None),),
            stderr="RuntimeError: An attempt has been made to start a new process before the current process …",
            batches=0,
            samples=0,
            start_method="spawn",
        ),
        trial(0),
        source=source(
            has_main_guard=False,
            loops=(LoaderLoop(place=place(31), loader=place(29), is_module_level=True),),
            loaders=(LoaderCall(place=place(29), is_module_level=True, workers=2),),
            start_method="spawn",
            start_methods=(place(17, 'mp.set_start_method("spawn", force=True)'),),
        ),
    ),
    "050_sklearn_openmp_after_fork": facts(
        loader(40, pools=(NativePool(library="sklearn", kind="openmp", threads=2, is_used=True), TORCH_POOL)),
        hanging(
            stuck(
                place(26, "return KMeans(k).fit(pts)", "anchors"),
                above=(Place(f"{SITE}/sklearn/cluster/_kmeans.py", 700, "_kmeans_single_lloyd"),),
                library="sklearn",
            )
        ),
        trial(0),
        trial(2, engine="antifreeze"),
    ),
    "051_torch_set_num_threads_in_worker": facts(
        loader(35, pools=(TORCH_POOL,), worker_init_at=place(28, function="use_more_cores")),
        hanging(stuck(place(25, "return i, (torch.full((512, 512), float(i)) @ torch.eye(512))[0, 0]"))),
        trial(0),
        trial(2, engine="antifreeze"),
        source=source(thread_settings=(place(29, "torch.set_num_threads(2)", "use_more_cores"),)),
    ),
    "053_thread_pool_created_in_main": facts(
        loader(
            40,
            held=(Held(path="dataset.pool", kind="executor", what="a ThreadPoolExecutor", place=place(28)),),
            threads=("ThreadPoolExecutor-0_0", "ThreadPoolExecutor-0_1"),
        ),
        hanging(stuck(place(35, "return i, torch.tensor(list(self.pool.map(read_channel, [i] * 3)))"), above=FUTURES)),
        trial(0),
        trial(2, engine="antifreeze"),
    ),
    "056_tokenizers_parallelism_forced": facts(
        loader(
            42,
            has_default_collate=False,
            pools=(NativePool(library="tokenizers", kind="rayon", threads=2, is_used=True),),
        ),
        hanging(
            stuck(
                place(36, "return torch.tensor([e.ids for e in tokenizer.encode_batch(texts)])", "collate"),
                stage="collate",
                sample=None,
                library="tokenizers",
            )
        ),
        trial(0),
    ),
    "061_mp_lock_abandoned_by_killed_worker": once(
        killed(dead(-9, "SIGKILL", "9", None, locks_held=("dataset.lock",), is_oom=False)), line=43
    ),
    "070_file_object_shared_offset": facts(
        loader(
            48,
            held=(Held(path="dataset.f", kind="file", what="an open file 'records.bin' (mode 'rb')", place=place(27)),),
        ),
        written(wrong=("460", "17")),
        *OTHERS,
    ),
    "071_zipfile_shared": facts(
        loader(43, held=(Held(path="dataset.zip", kind="archive", what="a ZipFile 'data.zip'", place=place(27)),)),
        written(
            Outcome.ERROR,
            raised=Raised(
                type="zipfile.BadZipFile",
                message="Bad CRC-32 for file '53.npy'",
                stage="fetch",
                place=place(33, 'np.load(io.BytesIO(self.zip.read(f"{i}.npy")))'),
                sample="53",
            ),
        ),
        *OTHERS,
    ),
    "074_http_connection_shared": facts(
        loader(59, held=(Held(path="dataset.conn", kind="socket", what="an HTTPConnection", place=place(39)),)),
        written(
            Outcome.ERROR,
            raised=Raised(
                type="RuntimeError",
                message="storage answered nonsense for 2: ResponseNotReady('Request-sent')",
                stage="fetch",
                place=place(53, 'raise RuntimeError(f"storage answered nonsense for {i}: {e!r}")'),
                sample="2",
            ),
        ),
        *OTHERS,
    ),
    "075_lmdb_environment_forked": facts(
        loader(41, held=(Held(path="dataset.env", kind="lmdb", what="an LMDB environment", place=place(25)),)),
        *(
            replace(
                each,
                outcome=Outcome.ERROR,
                raised=Raised(
                    type="lmdb.ReadersFullError",
                    message="mdb_txn_begin: MDB_READERS_FULL",
                    stage="fetch",
                    place=place(36, "with self.env.begin() as txn:"),
                    sample="0",
                ),
            )
            for each in (written(), trial(1))
        ),
        trial(0),
        trial(2, engine="antifreeze"),
    ),
    "076_iterable_shared_text_file": facts(
        loader(
            43,
            is_iterable=True,
            samples=None,
            held=(Held(path="dataset.f", kind="file", what="an open file 'corpus.txt' (mode 'r')", place=place(25)),),
        ),
        written(
            Outcome.ERROR,
            raised=Raised(
                type="ValueError",
                message="invalid literal for int()",
                stage="fetch",
                place=place(33, "yield torch.tensor([int(v) for v in line.split()])", "__iter__"),
            ),
            same_items=0,
            has_asked_for_worker_info=True,
        ),
        *OTHERS,
    ),
    "080_worker_oom_killed_once": once(killed(dead(-9, "SIGKILL", "13", None, is_oom=False)), line=40),
    "081_worker_segfault_once": once(killed(dead(-11, "SIGSEGV", "13", place(35))), line=41),
    "082_poison_sample_segfaults": facts(
        loader(38),
        killed(dead(-11, "SIGSEGV", "13", place(24, function="decode"))),
        *(
            trial(workers, Outcome.CRASH, engine=engine, deaths=(dead(-11, "SIGSEGV", "13", place(24)),))
            for workers, engine in ((0, "torch"), (1, "torch"), (2, "antifreeze"))
        ),
    ),
    "083_worker_exit_code_1_once": once(killed(dead(1, "os._exit", "13", place(34))), line=40),
    "084_worker_sys_exit_once": once(killed(dead(0, "sys.exit", "13", place(34))), line=40),
    "086_worker_exits_while_sending": once(
        killed(dead(0, "os._exit", "4", place(34)), Outcome.HANG), line=40, num_workers=1
    ),
    "088_iterable_worker_killed_once": once(
        killed(dead(-9, "SIGKILL", None, None, is_oom=False)), line=39, is_iterable=True, samples=None
    ),
    "090_read_without_timeout_stalls_once": once(
        hanging(
            stuck(place(46, "return i, torch.tensor(int(s.recv(16)))"), waits_in="socket", sample="7", typical_s=0.01)
        ),
        line=53,
    ),
    "092_poison_sample_loops_forever": facts(
        loader(41),
        *(
            trial(
                workers,
                Outcome.HANG,
                is_as_written=workers == 2,
                stuck=(
                    replace(
                        stuck(place(34), sample="7", waits_in=None, state="R", typical_s=0.001),
                        cpu_share=0.98,
                        role="worker" if workers else "trainer",
                    ),
                ),
            )
            for workers in (2, 0, 1)
        ),
    ),
    "093_timeout_hits_a_slow_first_batch": facts(
        loader(37, timeout_s=3.0),
        written(
            Outcome.ERROR,
            raised=Raised(type="RuntimeError", message="DataLoader timed out after 3 seconds", stage="receive"),
            stuck=(stuck(place(30, "time.sleep(5)"), waits_in="sleep"),),
            batches=0,
            samples=0,
        ),
        trial(0, first_batch_s=5.0, seconds=5.1),
        trial(2, engine="antifreeze", first_batch_s=5.2, seconds=5.4),
    ),
    "100_corrupt_image_stops_training": facts(
        loader(42),
        *failing(
            Raised(
                type="PIL.UnidentifiedImageError",
                message="cannot identify image file <_io.BufferedReader name='11.png'>",
                stage="fetch",
                place=place(33),
                sample="11",
            )
        ),
    ),
    "101_transient_io_error_once": once(
        written(
            Outcome.ERROR,
            raised=Raised(
                type="OSError",
                message="[Errno 5] Input/output error: '/mnt/nfs/train/000013.npy'",
                stage="fetch",
                place=place(35),
                sample="13",
            ),
        ),
        line=41,
    ),
    "103_worker_init_seed_too_large": facts(
        loader(35, worker_init_at=place(29)),
        written(
            Outcome.ERROR,
            raised=Raised(
                type="ValueError",
                message="Seed must be between 0 and 2**32 - 1",
                stage="init",
                place=place(30),
                worker=0,
            ),
        ),
        trial(0),
    ),
    "104_batch_sampler_bad_index": facts(
        loader(38, samples=22, sampler="BucketBatches"),
        *failing(
            Raised(type="IndexError", message="list index out of range", stage="fetch", place=place(27), sample="22")
        ),
    ),
    "105_stopiteration_in_getitem": facts(
        loader(35, samples=40),
        *failing(Raised(type="StopIteration", message="", stage="fetch", place=place(30), sample="16"), Outcome.SHORT),
    ),
    "107_keyerror_in_collate": facts(
        loader(32),
        *failing(
            Raised(
                type="KeyError",
                message="'boxes'",
                stage="collate",
                sample="6",
                batch=("4", "5", "6", "7"),
                culprit="it has no key 'boxes'",
            )
        ),
    ),
    "108_sampler_raises_mid_epoch": facts(
        loader(43, sampler="CurriculumSampler"),
        *failing(
            Raised(
                type="IndexError",
                message="list index out of range",
                stage="sampler",
                place=place(37, function="__iter__"),
            )
        ),
    ),
    "110_pool_inside_worker": facts(
        loader(36),
        written(
            Outcome.ERROR,
            raised=Raised(
                type="AssertionError",
                message="daemonic processes are not allowed to have children",
                stage="fetch",
                place=place(30),
                sample="0",
            ),
        ),
        trial(0),
        trial(2, engine="antifreeze"),
    ),
    "120_none_sample": facts(
        loader(34),
        *(
            replace(each, none_samples=("9",))
            for each in failing(
                Raised(
                    type="AttributeError",
                    message="'NoneType' object has no attribute 'numel'",
                    stage="collate",
                    sample="9",
                    swallowed="OSError: cannot identify image file",
                )
            )
        ),
        source=source(
            datasets=(
                dataset(
                    19,
                    sights=(Sight(kind="returns-none-in-except", what="return None", place=place(29), also=place(28)),),
                ),
            )
        ),
    ),
    "130_generator_in_dataset_same_in_workers": facts(
        loader(33, held=(Held(path="dataset.rng", kind="generator", what="a numpy Generator", place=place(22)),)),
        written(same_draws=("dataset.rng",)),
        *OTHERS,
    ),
    "132_worker_init_fixed_seed": facts(
        loader(33, worker_init_at=place(28)),
        written(same_seeds=True),
        *OTHERS,
        source=source(
            loaders=(LoaderCall(place=place(33), workers=2),),
            worker_inits=(
                WorkerInit(
                    name="init",
                    place=place(28),
                    seeds=(place(29),),
                    seeds_from=("worker_id",),
                    is_fixed=True,
                    used_by=(place(33),),
                ),
            ),
            loops=(LoaderLoop(place=place(37), loader=place(33), epochs=place(35)),),
        ),
    ),
    "140_iterable_not_sharded": facts(
        loader(27, is_iterable=True, samples=None, dataset="Stream", dataset_at=place(19)),
        written(same_items=2, has_asked_for_worker_info=False),
        *OTHERS,
    ),
    "150_copy_on_write_list_growth": facts(
        loader(36, bulks=(Bulk(path="dataset.items", type="list", count=400_000, bytes=55 * MB, place=place(21)),)),
        written(memory=(WorkerMemory(worker=0, first_bytes=25 * MB, last_bytes=33 * MB, samples=40_000),)),
        *OTHERS,
    ),
    "160_orphans_after_main_killed": facts(
        loader(34),
        replace(
            hanging(stuck(place(29, "time.sleep(600)"), waits_in="sleep", sample="8", typical_s=0.001)),
            orphans=(stuck(place(29, "time.sleep(600)"), waits_in="sleep", sample="8"),),
        ),
        trial(
            0,
            Outcome.HANG,
            stuck=(
                replace(
                    stuck(place(29, "time.sleep(600)"), waits_in="sleep", sample="8", typical_s=0.001), role="trainer"
                ),
            ),
        ),
        run=Run(command="train.py", outcome=Outcome.OK, reached_a_loader=True, is_trainer_a_child=True),
    ),
    "162_break_waits_five_seconds_per_worker": facts(
        loader(31, samples=1000),
        replace(
            hanging(stuck(place(25, "time.sleep(60)"), waits_in="sleep", sample="4", typical_s=0.001)),
            shutdown_s=10.1,
            orphans=(stuck(place(25, "time.sleep(60)"), waits_in="sleep", sample="4"),),
        ),
        source=source(loops=(LoaderLoop(place=place(31), breaks=(place(37, "break"),)),)),
    ),
    "170_spawn_workers_restarted_every_epoch": facts(
        loader(31, start_method="spawn"),
        written(first_batch_s=5.0, seconds=5.2, start_method="spawn"),
        trial(0),
        trial(2, engine="antifreeze"),
        source=source(
            loaders=(LoaderCall(place=place(31), workers=2, start_method="spawn"),),
            loops=(LoaderLoop(place=place(36), loader=place(31), epochs=place(33)),),
        ),
    ),
    "172_many_small_tensors_slow": facts(
        loader(36, batch_size=16, samples=512, batches=32),
        written(batches=32, samples=512, seconds=1.5, first_batch_s=0.1, batch_tensors=150),
        trial(0, batches=32, samples=512, seconds=0.06, first_batch_s=0.002, batch_tensors=150),
        trial(2, engine="antifreeze", batches=32, samples=512, seconds=0.2, first_batch_s=0.1, batch_tensors=150),
    ),
    "180_start_method_set_twice": Facts(
        machine=machine(),
        source=source(start_methods=(place(31, 'mp.set_start_method("spawn")'),)),
        run=Run(
            command="train.py",
            outcome=Outcome.ERROR,
            raised=Raised(type="RuntimeError", message="context has already been set", stage="script", place=place(31)),
        ),
    ),
    "181_persistent_workers_stale_dataset": facts(
        loader(36, persistent_workers=True),
        written(),
        *OTHERS,
        source=source(
            datasets=(dataset(20, changed_by={"set_epoch": ("epoch",)}),),
            loaders=(LoaderCall(place=place(36), arguments={"dataset": "ds", "persistent_workers": "True"}),),
            loops=(
                LoaderLoop(
                    place=place(40),
                    loader=place(36),
                    epochs=place(37),
                    dataset_calls=(place(38, "ds.set_epoch(epoch)"),),
                ),
            ),
        ),
    ),
    "182_worker_state_never_comes_back": facts(
        loader(36),
        written(),
        *OTHERS,
        source=source(
            datasets=(
                dataset(19, sights=(Sight(kind="changes-self", what="self.bad", place=place(28), also=place(38)),)),
            ),
            loaders=(LoaderCall(place=place(36), workers=2, datasets=("Data",)),),
            loops=(LoaderLoop(place=place(36), loader=place(36)),),
        ),
    ),
}


def test_every_case_of_the_zoo_has_its_sheet() -> None:
    assert SHEETS.keys() == EXPECTED.keys()


def test_the_diagnosis_of_every_case_is_right() -> None:
    found = {case: faults(case, facts) for case, facts in SHEETS.items()}
    assert {case: each for case, each in found.items() if each} == {}


def test_facts_of_all_cases_survive_being_saved() -> None:
    assert [case for case, facts in SHEETS.items() if Facts.from_json(facts.to_json()) != facts] == []


def test_facts_of_another_case_are_no_right_diagnosis() -> None:
    """So that we know that the judge would notice."""
    assert faults("001_shm_docker_64m", SHEETS["003_shm_one_batch_too_big"])
    assert faults("080_worker_oom_killed_once", SHEETS["081_worker_segfault_once"])
