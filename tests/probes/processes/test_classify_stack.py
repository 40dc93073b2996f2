"""What stacks say: roles, ranks, samples, and which part of a forked worker's stack is its own."""

from collections.abc import Mapping

from antifreeze.engine.supervise.stacks import Frame
from antifreeze.probes.processes import classify_stack
from antifreeze.probes.processes.spy import Call

TORCH = "/x/site-packages/torch"


def call(file: str, function: str, values: Mapping[str, str] | None = None, *, line: int = 1) -> Call:
    return Call(Frame(file, line, function), values or {})


LOOP = call("/home/me/train.py", "<module>")
IN_LOADER = call(f"{TORCH}/utils/data/dataloader.py", "_try_get_data")
BORN = call(f"{TORCH}/utils/data/_utils/worker.py", "_worker_loop", {"worker_id": "3"})
FETCH = call(f"{TORCH}/utils/data/_utils/fetch.py", "fetch", {"possibly_batched_index": "[4, 5, 6, ...]"})
LISTED = call(f"{TORCH}/utils/data/_utils/fetch.py", "<listcomp>", {"idx": "5"})
GETITEM = call("/home/me/data.py", "__getitem__")
STARTING = call(f"{TORCH}/utils/data/dataloader.py", "__init__")
WORKER = [GETITEM, LISTED, FETCH, BORN, call("/usr/lib/python3.11/multiprocessing/process.py", "run"), STARTING, LOOP]


def test_what_a_forked_worker_has_from_its_trainer_is_not_its_own() -> None:
    assert classify_stack.own_part(WORKER) == (GETITEM, LISTED, FETCH, BORN)
    assert classify_stack.own_part([IN_LOADER, LOOP]) == (IN_LOADER, LOOP)
    assert classify_stack.users_frames(classify_stack.own_part(WORKER)) == [GETITEM.frame]


def test_a_worker_is_known_with_its_number_sample_and_batch() -> None:
    assert classify_stack.role_by_stack(WORKER) == "worker"
    assert classify_stack.worker_number(WORKER) == 3
    assert classify_stack.sample_at(WORKER) == "5"
    assert classify_stack.batch_at(WORKER) == ("4", "5", "6")


def test_the_line_of_torchs_own_says_what_a_worker_is_at() -> None:
    def stage(line: str, *calls: Call) -> str | None:
        return classify_stack.stage_of_worker(calls, lambda _file, _line: line)

    assert stage("r = index_queue.get(timeout=5)", BORN) == "idle"
    assert stage("data_queue.put((idx, data))", BORN) == "send"
    assert stage("init_fn(worker_id)", BORN) == "init"
    assert stage("data = [self.dataset[idx] for idx in indices]", FETCH, BORN) == "fetch"
    assert stage("return self.collate_fn(data)", FETCH, BORN) == "collate"


def test_where_the_source_is_out_of_reach_the_queue_tells() -> None:
    def stage(*calls: Call) -> str | None:
        return classify_stack.stage_of_worker(calls, lambda _file, _line: "")

    assert stage(call("/usr/lib/python3.11/multiprocessing/queues.py", "get"), BORN) == "idle"
    assert stage(GETITEM, LISTED, FETCH, BORN) == "fetch"
    assert stage(GETITEM, BORN) is None


def test_a_trainer_waits_starts_ends_loads_or_is_elsewhere() -> None:
    assert classify_stack.stage_of_trainer([IN_LOADER, LOOP]) == "next"
    assert classify_stack.stage_of_trainer([STARTING, LOOP]) == "start"
    assert classify_stack.stage_of_trainer([call(IN_LOADER.frame.file, "_shutdown_workers"), LOOP]) == "close"
    assert classify_stack.stage_of_trainer([GETITEM, FETCH, IN_LOADER, LOOP]) == "fetch"
    assert classify_stack.stage_of_trainer([LOOP]) == "step"


def test_a_rank_is_what_was_spawned_and_not_who_spawned_it() -> None:
    file = f"{TORCH}/multiprocessing/spawn.py"
    assert classify_stack.rank_in([LOOP, call(file, "_wrap", {"i": "1"})]) == 1
    assert classify_stack.rank_in([call(file, "start_processes", {"i": "1"}), LOOP]) is None


def test_processes_that_cannot_be_seen_are_known_by_their_names() -> None:
    assert classify_stack.role_by_name("pt_data_worker", ["python", "train.py"], maps_our_memory=False) == "worker"
    assert classify_stack.role_by_name("pt_data_worker", ["python", "train.py"], maps_our_memory=True) == "our-worker"
    tracker = ["python", "-c", "from multiprocessing.resource_tracker import main;main(7)"]
    assert classify_stack.role_by_name("python", tracker, maps_our_memory=False) == "resource-tracker"
    assert classify_stack.role_by_name("python", ["python", "train.py"], maps_our_memory=False) is None


def test_native_functions_are_told_down_to_python_without_those_below_everything() -> None:
    def native(file: str, function: str) -> Call:
        return Call(Frame(file, 0, function), is_native=True)

    stack = [
        native("/lib/libc.so.6", "0x7f"),
        native("/x/libgomp-1.so.1", "0x7e"),
        native("/x/k.so", "fit" * 40),
        GETITEM,
        native("/x/above.so", "outer"),
    ]
    assert classify_stack.natives(stack) == ("libgomp-1.so.1", f"{('fit' * 40)[:60]} (k.so)")
