"""A target as it comes from an examination: a thread pool made in the trainer, and workers that wait for it for ever."""

from antifreeze.doctor.facts import (
    Assignment,
    DatasetClass,
    Facts,
    Held,
    Loader,
    LoaderCall,
    Machine,
    Obstacle,
    Outcome,
    Place,
    Run,
    Source,
    Stuck,
    Trial,
)
from antifreeze.doctor.finding import Finding, Weight

GB = 1 << 30
MADE = Place("data.py", 12, "__init__", "self.pool = ThreadPoolExecutor(2)")
USED = Place("data.py", 88, "__getitem__", "return self.pool.map(read, parts)")
BUILT = Place("train.py", 41, "<module>", "loader = DataLoader(Channels(), num_workers=2)")

FROZEN = Facts(
    machine=Machine(
        cpus=64,
        usable_cpus=8,
        cpu_quota=8.0,
        memory_available_bytes=31 * GB,
        shm_total_bytes=16 * GB,
        shm_free_bytes=16 * GB,
        descriptors_soft=1048576,
        start_method="fork",
        thread_settings={"OMP_NUM_THREADS": "8"},
        versions={"python": "3.11.7", "torch": "2.13.0"},
    ),
    source=Source(
        script="project/train.py",
        files=("train.py", "data.py"),
        datasets=(
            DatasetClass(
                name="Channels",
                place=Place("data.py", 9),
                assignments=(
                    Assignment(
                        name="pool",
                        value="concurrent.futures.ThreadPoolExecutor",
                        place=MADE,
                        used_at=USED,
                        used_as=("map",),
                    ),
                ),
            ),
        ),
        loaders=(LoaderCall(place=BUILT, arguments={"num_workers": "2"}, name="loader"),),
    ),
    run=Run(command="project/train.py --epochs 3", outcome=Outcome.OK, reached_a_loader=True, stderr="loading…\n"),
    loaders=(
        Loader(
            number=0,
            built_at=BUILT,
            num_workers=2,
            batch_size=4,
            prefetch_factor=2,
            start_method="fork",
            dataset="Channels",
            samples=16,
            obstacles=(
                Obstacle(
                    path="dataset.pool", what="a ThreadPoolExecutor", why="cannot pickle '_thread.lock'", place=MADE
                ),
            ),
            held=(Held(path="dataset.pool", kind="executor", what="a ThreadPoolExecutor", place=MADE, is_deadly=True),),
            threads=("ThreadPoolExecutor-0_0",),
        ),
    ),
    trials=(
        Trial(loader=0, engine="torch", workers=0, outcome=Outcome.OK, batches=4, samples=16, seconds=0.1),
        Trial(
            loader=0,
            engine="torch",
            workers=2,
            outcome=Outcome.HANG,
            is_as_written=True,
            seconds=12.0,
            stuck=(Stuck(role="worker", worker=1, pid=4243, sample="2", seconds=12.0, place=USED, waits_in="lock"),),
            stderr="Traceback: none\n",
        ),
        Trial(loader=0, engine="antifreeze", workers=2, outcome=Outcome.OK, batches=4, samples=16, seconds=0.08),
    ),
)
POOL = Finding(
    code="AF101",
    weight=Weight.CERTAIN,
    what="worker 1 never returned sample 2",
    where=USED,
    why="data.py:12 makes a ThreadPoolExecutor in the trainer; its threads do not exist in a forked worker",
    fix=("antifreeze run {script}", "make the pool on first use: {'pool': None}"),
    evidence=("reproduced: no batch for 12 s", "futex wait"),
    loader=0,
    worker=1,
    pid=4243,
    sample="2",
)
DOUBT = Finding(
    code="AF404",
    weight=Weight.POSSIBLE,
    what="100 % of the workers, for nothing: they wait",
    why="two lines\nof why",
    fix=("num_workers=1",),
    rivals=("AF406",),
    decide="antifreeze doctor --batches 100 {script}",
)
