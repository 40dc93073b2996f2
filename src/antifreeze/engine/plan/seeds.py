"""The seed of a ticket: it follows from the seed of its pass and from its place in the pass, and from nothing else."""

from __future__ import annotations

import hashlib
import struct


def ticket_seed(pass_seed: int, batch: int) -> int:
    """A number of 64 bits that says nothing about that of any other batch, or of any other pass."""
    digest = hashlib.blake2b(struct.pack("<QQ", pass_seed & _WORD, batch), digest_size=8, person=b"antifreeze").digest()
    return int.from_bytes(digest, "little")


_WORD = (1 << 64) - 1
