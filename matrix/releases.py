"""The releases of torch that the matrix runs on: the latest patch of each minor release since the oldest one we support."""

from __future__ import annotations

RELEASES = ("2.6.0", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
"""Oldest first. A new release is added here, and nowhere else."""


def in_order(release: str) -> tuple[int, ...]:
    """What releases are sorted by: `2.10.0` comes after `2.9.1`."""
    return tuple(int(part) for part in release.split("."))
