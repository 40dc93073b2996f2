"""Keeps a loader of ours ours when a library takes it apart and builds one of torch's class from its pieces.

accelerate (`prepare`) and Ray Train do that. What survives is the dataset: a loader of our class leaves its options here,
by its dataset, and torch's factory of iterators looks here before it does what it always did. That change to the factory
is made when our class is first built; `forget` undoes it.

Only libraries that are known to do this are served. Whoever else builds a loader of torch's class means torch's, also over
a dataset that one of our loaders has.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from antifreeze.inline import iterator_for
from antifreeze.iterator import Iterator
from antifreeze.observe.accounts import account_of, share_account
from antifreeze.options import Mode, arguments, bequeath, mode
from antifreeze.torch_side.loaders import HAS_ITERATORS, factory, set_factory

TAKE_LOADERS_APART = ("accelerate", "ray")
"""Packages that build a loader of torch's class from the user's, and iterate over it themselves."""


@dataclass(frozen=True, slots=True)
class _Estate:
    """What a loader of ours leaves to those that are built from its pieces."""

    dataset: weakref.ref[Any]
    loader: weakref.ref[Any]
    options: Mapping[str, Any]


# By identity: datasets may be compared by their contents, or have no hash.
_estates: dict[int, _Estate] = {}
_torchs_own: Any = None
"""torch's factory of iterators; None while it is in its place."""


def remember(loader: Any) -> None:
    """Keep the options of a loader of ours for those that are built from its pieces.

    The last loader with a dataset counts. A dataset without weak references (a list) is not kept: it would stay for ever.
    """
    dataset = loader.dataset
    try:
        # C code alone runs when the dataset dies, wherever that is: in a Python function, what a signal handler raises
        # would be dropped.
        dying = functools.partial(_estates.pop, id(dataset))
        estate = _Estate(weakref.ref(dataset, dying), weakref.ref(loader), arguments(loader))
    except TypeError:
        return
    _estates[id(dataset)] = estate
    _take_the_factory()


def forget() -> None:
    """Give torch its factory back. Loaders of our own class stay ours."""
    global _torchs_own
    _estates.clear()
    if factory() is _get_iterator:  # else somebody put theirs over ours, and it is not ours to take away
        set_factory(_torchs_own)
        _torchs_own = None


def _take_the_factory() -> None:
    global _torchs_own
    if _torchs_own is None and HAS_ITERATORS and factory() is not None:
        _torchs_own = factory()
        set_factory(_get_iterator)


@functools.wraps(factory())
def _get_iterator(self: Any) -> Any:
    estate = None
    if mode() is not Mode.OFF:
        # Called by torch's __iter__, which was called by whoever wants the batches.
        estate = _estate_of(self.dataset, asker=sys._getframe(2).f_globals.get("__name__", ""))
    if estate is None:
        return _torchs_own(self)
    bequeath(estate.options, heir=self)
    original = estate.loader()
    if original is not None:  # somebody may still ask it for its ledger
        share_account(account_of(original), heir=self)
    if self.num_workers == 0:
        return iterator_for(self)
    self.check_worker_number_rationality()
    return Iterator(self)


def _estate_of(dataset: Any, *, asker: str) -> _Estate | None:
    """What was left for a loader that this module iterates over."""
    if _package(asker) not in TAKE_LOADERS_APART:
        return None
    if _package(type(dataset).__module__) in TAKE_LOADERS_APART:  # accelerate's IterableDatasetShard, over the user's
        dataset = getattr(dataset, "dataset", dataset)
    estate = _estates.get(id(dataset))
    return estate if estate is not None and estate.dataset() is dataset else None


def _package(module: str) -> str:
    return module.partition(".")[0]
