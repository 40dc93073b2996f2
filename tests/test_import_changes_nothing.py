"""Importing antifreeze changes nothing in a program; using it leaves no code of ours that runs inside the user's."""

from collections.abc import Callable

import pytest

from user_scripts import Ended

SCRIPT = '''
import atexit, builtins, contextlib, copyreg, ctypes, faulthandler, gc, importlib, json, logging, os, pkgutil, random
import resource, signal, sys, threading, warnings

import numpy
import torch
import torch.multiprocessing
import torch.utils.data

registered = []


def note(module, name):
    original = getattr(module, name)

    def noting(*arguments, **named):
        registered.append((name, sys._getframe(1).f_globals.get("__name__", "?")))
        return original(*arguments, **named)

    setattr(module, name, noting)


for module, name in [(os, "register_at_fork"), (sys, "addaudithook"), (atexit, "register"), (sys, "settrace")]:
    note(module, name)

COMMANDS = ("antifreeze.cli", "antifreeze.demo", "antifreeze.bootstrap", "antifreeze.__main__", "antifreeze.probes")


def import_all():
    import antifreeze

    for found in pkgutil.walk_packages(antifreeze.__path__, "antifreeze."):
        if not found.name.startswith(COMMANDS):
            importlib.import_module(found.name)
    for name in antifreeze.__all__:
        getattr(antifreeze, name)


def others_modules():
    """What antifreeze imports of others, as a child finds it."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            import_all()
        finally:
            with open(theirs, "w") as file:
                json.dump([name for name in sys.modules if name.split(".")[0] not in ("antifreeze", "__main__")], file)
            os._exit(0)
    os.close(theirs)
    with open(ours) as file:
        names = json.load(file)
    os.waitpid(child, 0)
    return names


def attributes(thing):
    return {name: id(value) for name, value in vars(thing).items() if not name.startswith("__")}


def is_followed(name):
    return name.split(".")[0] in ("torch", "multiprocessing", "pickle", "copyreg", "threading", "signal", "os", "gc")


def state():
    from multiprocessing.reduction import ForkingPickler

    modules = {name: attributes(module) for name, module in list(sys.modules.items()) if is_followed(name)}
    classes = {"DataLoader": torch.utils.data.DataLoader, "Tensor": torch.Tensor, "UntypedStorage": torch.UntypedStorage,
               "iterator": torch.utils.data.dataloader._MultiProcessingDataLoaderIter, "Dataset": torch.utils.data.Dataset,
               "Process": __import__("multiprocessing.process").process.BaseProcess}
    return {
        **running_inside(),
        "atexit": atexit._ncallbacks(),
        "environment": dict(os.environ),
        "working directory": os.getcwd(),
        "path": list(sys.path),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "limits": [resource.getrlimit(number) for number in range(16)],
        "hooks": [sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook],
        "interpreter": [sys.getrecursionlimit(), sys.getswitchinterval(), faulthandler.is_enabled(), gc.get_threshold(),
                        gc.isenabled(), gc.get_freeze_count()],
        "generators": [random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()],
        "torch": [torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
                  torch.multiprocessing.get_sharing_strategy(), torch.multiprocessing.get_start_method(allow_none=True)],
        "reducers": {**ForkingPickler._extra_reducers, **copyreg.dispatch_table},
        "collate functions": dict(torch.utils.data._utils.collate.default_collate_fn_map),
        "logging": [logging.root.level, list(logging.root.handlers), logging.raiseExceptions],
        "builtins": attributes(builtins),
        "ctypes": sorted(vars(ctypes.pythonapi)),
        "modules": modules,
        "classes": {name: attributes(kind) for name, kind in classes.items()},
    }


def running_inside():
    """What runs at moments that the program does not choose."""
    return {
        "gc callbacks": list(gc.callbacks),
        "signal handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "timers": [signal.getitimer(timer) for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "threads": [thread.name for thread in threading.enumerate()],
        "tasks": len(os.listdir("/proc/self/task")),
        "warnings": list(warnings.filters),
        "import hooks": [*sys.meta_path, *sys.path_hooks],
        "tracing": [sys.gettrace(), sys.getprofile(), threading._trace_hook, threading._profile_hook],
    }


def differences(before, after, path=""):
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from differences(before.get(key, "nothing"), after.get(key, "nothing"), f"{path} {key}")
    elif before != after:
        yield f"{path}: {before!r} became {after!r}"


class Callbacks(torch.utils.data.Dataset):
    """What the collector of a worker calls."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        assert not sys.gettrace() and not sys.getprofile()
        return len(gc.callbacks), torch.full((40_000,), float(index))


if __name__ == "__main__":
    for name in others_modules():
        with contextlib.suppress(ImportError):  # some are made by others, and have no file
            importlib.import_module(name)
    del registered[:]
    gc.collect()
    before = state()
    import_all()
    after = state()
    found = list(differences(before, after))
    assert not found, "importing antifreeze changed\\n" + "\\n".join(found)
    ours = [each for each in registered if each[1].startswith("antifreeze")]
    assert not ours, f"importing antifreeze registered {ours}"

    from antifreeze import DataLoader

    inside = running_inside()
    for workers in (0, 2):
        context = "fork" if workers else None
        loader = DataLoader(Callbacks(), batch_size=2, num_workers=workers, multiprocessing_context=context)
        for counts, _ in loader:
            assert counts.tolist() == [len(gc.callbacks)] * 2, counts
            during = dict(running_inside(), threads=inside["threads"], tasks=inside["tasks"])
            assert not list(differences(inside, during)), list(differences(inside, during))
    del loader, _, counts
    found = list(differences(inside, running_inside()))
    assert not found, "using antifreeze left behind\\n" + "\\n".join(found)
    assert not [name for name, _ in registered if name in ("addaudithook", "settrace")], registered
'''


@pytest.mark.usefixtures("not_for_torch")
def test_importing_changes_nothing_and_using_leaves_nothing_that_runs_in_user_code(
    run_script: Callable[..., Ended],
) -> None:
    run_script(SCRIPT).check()
