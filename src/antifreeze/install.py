"""Puts our engine behind the loaders that others build, and takes it away again.

Two names of `torch.utils.data.dataloader` are rebound, each to our subclass of that class: that of torch's iterator with
workers, and that of the one for `num_workers=0`. The `DataLoader` of torch looks the name up whenever it needs an
iterator, and every `isinstance` stays true. fastai and litdata copy the names when they
are imported, so they have to be ours before anybody can read them.

When that is. `import torch` itself runs `torch.utils.data.dataloader`, early: torch is half there then, without
`torch.multiprocessing`, and importing our iterator would be too soon. So we act when the body of `torch` has run, still
inside the `import` statement: nobody but torch has seen the names by then, and torch does not copy them. (A torch that
loads its data package only on demand is met by the second wait.)

This file is loaded at the start of every Python process under `antifreeze run`, so it imports next to nothing.
"""

from __future__ import annotations

import sys

from antifreeze.whenimported import say_and_go_on, when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

_is_wanted = False
_torchs_own: dict[str, type] = {}
"""What stood behind each name before we came; empty while it still does."""


def install() -> None:
    """Put the engine behind every loader of this process, now or as soon as torch has been imported."""
    from antifreeze.options import mode

    mode()  # a setting that cannot work is an error here, and not of some later import
    install_when_imported()


def install_when_imported() -> None:
    """As `install`, for a process that may never import torch: reads and imports nothing before it does."""
    global _is_wanted
    _is_wanted = True
    when_imported("torch", _wait_for_the_loaders, on_fault=_fail_open)


def uninstall() -> None:
    """Give torch its own iterators back. Those that exist go on as they are, and loaders of our class stay ours."""
    global _is_wanted
    _is_wanted = False
    if "antifreeze.adoption" in sys.modules:
        from antifreeze.adoption import forget

        forget()
    if not _torchs_own:
        return
    from torch.utils.data import dataloader

    for name, ours in _iterators().items():
        if getattr(dataloader, name) is ours:  # else somebody put theirs over ours, and it is not ours to take away
            setattr(dataloader, name, _torchs_own[name])
    _torchs_own.clear()


def _wait_for_the_loaders(_torch: ModuleType) -> None:
    when_imported("torch.utils.data.dataloader", _put_engine_in, on_fault=_fail_open)


def _put_engine_in(dataloader: ModuleType) -> None:
    from antifreeze.options import Mode, mode
    from antifreeze.torch_side import compiler

    if not _is_wanted or mode() is Mode.OFF:
        return
    when_imported(compiler.RULES, compiler.add_our_code)
    present = {name: getattr(dataloader, name) for name in _iterators()}
    for name, ours in _iterators().items():
        if present[name] is not ours:
            _torchs_own[name] = present[name]
            setattr(dataloader, name, ours)


def _iterators() -> dict[str, type]:
    """Our iterators, by the names of torch's that they take the place of."""
    from antifreeze.inline import ZeroIterator
    from antifreeze.iterator import Iterator
    from antifreeze.torch_side.frames import LOCAL_ITERATOR, WORKERS_ITERATOR

    return {WORKERS_ITERATOR: Iterator, LOCAL_ITERATOR: ZeroIterator}


def _fail_open(name: str, fault: Exception) -> None:
    """A fault of ours leaves torch as it is and says so, unless the user wants an error then."""
    from antifreeze.errors import InternalError
    from antifreeze.options import Mode, mode

    if mode() is Mode.REQUIRE:
        raise InternalError(
            "ANTIFREEZE=require, and the engine could not be put behind torch's loaders",
            where=f"after the import of {name}",
            why=f"{type(fault).__name__}: {fault}",
            try_="ANTIFREEZE=0 runs the program on torch's own loader",
        ) from fault
    say_and_go_on(name, fault)
