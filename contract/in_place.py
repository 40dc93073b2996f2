"""Puts our class where a suite imports the class that it tests, for all who import it later."""

from __future__ import annotations

import sys
from types import ModuleType

from antifreeze.whenimported import when_imported


def put(stock: str) -> None:
    """From here on, the loader of `stock` is ours; nothing is imported that the program does not import itself."""
    match stock:
        case "torch":
            when_imported("torch", _replace_in_torch, on_fault=_stop)
        case "torchdata":
            when_imported("torchdata.stateful_dataloader", _replace_in_torchdata, on_fault=_stop)


def _replace_in_torch(torch: ModuleType) -> None:
    import torch.utils.data.dataloader  # noqa: PLC0415 - once torch is there

    import antifreeze  # noqa: PLC0415 - which needs torch

    for place in (torch.utils.data, torch.utils.data.dataloader):
        place.DataLoader = antifreeze.DataLoader  # type: ignore[misc]
    antifreeze.install()


def _replace_in_torchdata(package: ModuleType) -> None:
    import antifreeze  # noqa: PLC0415 - which needs torch

    for place in (package, sys.modules["torchdata.stateful_dataloader.stateful_dataloader"]):
        place.StatefulDataLoader = antifreeze.StatefulDataLoader  # type: ignore[attr-defined]


def _stop(name: str, fault: Exception) -> None:
    """A suite that ran on stock without our knowing would prove nothing."""
    raise fault
