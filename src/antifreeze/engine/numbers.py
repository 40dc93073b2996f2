"""Numbers that must not be mixed up."""

from __future__ import annotations

from typing import NewType

WorkerNo = NewType("WorkerNo", int)
"""0 to num_workers - 1, as `torch.utils.data.get_worker_info().id`."""

SeatNo = NewType("SeatNo", int)
"""Names one worker process of an iterator; its replacement has the same worker number, and another seat."""

TicketNo = NewType("TicketNo", int)
"""Counts the tickets of an iterator over all its epochs, so that no two of them share a number."""

SlotNo = NewType("SlotNo", int)
"""Names a slot of the arena; never given to another slot."""
