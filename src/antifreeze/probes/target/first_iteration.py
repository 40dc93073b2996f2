"""Catches the first iteration of a loader with workers: the process that gets there first is the one that is examined.

Loaders without workers are let through, and so is everything that comes second, in whatever process: a spawned worker that
runs the script again must fail as it would without us.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from antifreeze.doctor.facts import Place
from antifreeze.observe.beside import Beside
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.target.failures import raised_fact
from antifreeze.probes.trials import record_files

_built_at: Beside[tuple[Place | None]] = Beside()


def _place_of(loader: Any) -> Place | None:
    return (_built_at.get(loader) or (None,))[0]


def hook_loaders(module: ModuleType, directory: str) -> None:
    loader = module.DataLoader
    places = places_of(directory)
    init, iterate = loader.__init__, loader.__iter__

    @functools.wraps(init)
    def noted_init(self: Any, *arguments: Any, **keywords: Any) -> None:
        init(self, *arguments, **keywords)
        if _built_at.get(self) is None:
            _built_at.keep(self, (places.of_caller(depth=2)[1],))

    @functools.wraps(iterate)
    def caught_iterate(self: Any) -> Any:
        note_loader(directory, workers=self.num_workers)
        if self.num_workers > 0 and may_claim() and claim(directory):
            examine_and_leave(self, directory, places, iterate)
        return iterate(self)

    loader.__init__, loader.__iter__ = noted_init, caught_iterate


def may_claim() -> bool:
    """Workers of a loader do not: what they iterate is their own affair."""
    from torch.utils.data import get_worker_info  # noqa: PLC0415 - torch is there by now

    return get_worker_info() is None


def claim(directory: str) -> bool:
    """Whether this process is the first."""
    try:
        fd = os.open(os.path.join(directory, record_files.CLAIM), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError:
        return False
    os.write(fd, b"%d" % os.getpid())
    os.close(fd)
    return True


def note_loader(directory: str, *, workers: int) -> None:
    with contextlib.suppress(OSError):
        os.close(
            os.open(
                os.path.join(directory, record_files.SEEN_LOADERS[min(workers, 1)]), os.O_CREAT | os.O_WRONLY, 0o600
            )
        )


def examine_and_leave(loader: Any, directory: str, places: PlaceMaker, iterate: Any) -> NoReturn:
    """The trials, and the end of the process: nothing of the program comes after its first batch."""
    iterated_at = places.of_caller(depth=3)[1]
    try:
        from antifreeze.probes.target.trial_series import TrialSeries  # noqa: PLC0415 - needs torch, and all of the engine

        others = [each for each in _built_at.objects() if each is not loader and each.num_workers > 0]
        series = TrialSeries(Path(directory), places, iterate=iterate, built_at=_place_of)
        series.examine(loader, iterated_at=iterated_at, others=others)
    except BaseException as fault:  # noqa: BLE001 - it is ours, and must not look like one of the program's
        import traceback  # noqa: PLC0415

        Path(directory, record_files.FAULT).write_text("".join(traceback.format_exception(fault)))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        Path(directory, record_files.DONE).touch()
        os._exit(0)


def places_of(directory: str) -> PlaceMaker:
    """As the one who started us wrote it down."""
    places = record_files.read_whole(Path(directory, record_files.PLACES), PlaceMaker)
    assert places is not None
    return places


def catch_failures(directory: str) -> None:
    """Note an exception that ends the script; the first process is the script itself."""
    try:
        fd = os.open(os.path.join(directory, record_files.SCRIPT), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError:
        return
    os.write(fd, b"%d" % os.getpid())
    os.close(fd)
    pid, shown = os.getpid(), sys.excepthook

    def noted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        if os.getpid() == pid and not issubclass(kind, KeyboardInterrupt):
            with contextlib.suppress(Exception):  # the program's own error is what matters
                note_failure(directory, error)
        return shown(kind, error, trace)

    sys.excepthook = noted


def note_failure(directory: str, error: BaseException) -> None:
    fact = raised_fact(error, stage="script", places=places_of(directory))
    record_files.write_whole(Path(directory, record_files.SCRIPT_RAISED), fact)
