"""Puts our engine behind the loaders that others build, and takes it away again.

One name is rebound: `torch.utils.data.dataloader._MultiProcessingDataLoaderIter`, to our subclass of that class. The
`DataLoader` of torch looks the name up whenever it needs workers, and every `isinstance` stays true. fastai and litdata
copy the name when they are imported, so it has to be ours before anybody can read it.

When that is. `import torch` itself runs `torch.utils.data.dataloader`, early: torch is half there then, without
`torch.multiprocessing`, and importing our iterator would be too soon. So we act when the body of `torch` has run, still
inside the `import` statement: nobody but torch has seen the name by then, and torch does not copy it. (A torch that
loads its data package only on demand is met by the second wait.)

This file is loaded at the start of every Python process under `antifreeze run`, so it imports next to nothing.
"""

from __future__ import annotations

import sys

from antifreeze.whenimported import say_and_go_on, when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

SEAM = "_MultiProcessingDataLoaderIter"

_is_wanted = False
_torchs_own: type | None = None
"""What stood behind the name before we came; None while it still does."""


def install() -> None:
    """Put the engine behind every loader of this process, now or as soon as torch has been imported."""
    from antifreeze.settings import mode

    mode()  # a setting that cannot work is an error here, and not of some later import
    install_when_imported()


def install_when_imported() -> None:
    """As `install`, for a process that may never import torch: reads and imports nothing before it does."""
    global _is_wanted
    _is_wanted = True
    when_imported("torch", _wait_for_the_loaders, on_fault=_fail_open)


def uninstall() -> None:
    """Give torch its own iterator back. Iterators that exist go on as they are, and loaders of our class stay ours."""
    global _is_wanted, _torchs_own
    _is_wanted = False
    if "antifreeze.adoption" in sys.modules:
        from antifreeze.adoption import forget

        forget()
    if _torchs_own is None:
        return
    from torch.utils.data import dataloader

    if getattr(dataloader, SEAM) is _engine():  # else somebody put theirs over ours, and it is not ours to take away
        setattr(dataloader, SEAM, _torchs_own)
    _torchs_own = None


def _wait_for_the_loaders(_torch: ModuleType) -> None:
    when_imported("torch.utils.data.dataloader", _put_engine_in, on_fault=_fail_open)


def _put_engine_in(dataloader: ModuleType) -> None:
    global _torchs_own
    from antifreeze.settings import Mode, mode

    if not _is_wanted or mode() is Mode.OFF:
        return
    present = getattr(dataloader, SEAM)
    if present is not _engine():
        _torchs_own = present
        setattr(dataloader, SEAM, _engine())


def _engine() -> type:
    from antifreeze.iterator import Iterator

    return Iterator


def _fail_open(name: str, fault: Exception) -> None:
    """A fault of ours leaves torch as it is and says so, unless the user wants an error then."""
    from antifreeze.errors import InternalError
    from antifreeze.settings import Mode, mode

    if mode() is Mode.REQUIRE:
        raise InternalError(
            "ANTIFREEZE=require, and the engine could not be put behind torch's loaders",
            where=f"after the import of {name}",
            why=f"{type(fault).__name__}: {fault}",
            try_="ANTIFREEZE=0 runs the program on torch's own loader",
        ) from fault
    say_and_go_on(name, fault)
