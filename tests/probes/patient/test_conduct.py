"""What the order of an examination leaves as it was."""

import socket
import tempfile
from collections.abc import Iterator
from multiprocessing import process
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

import pytest

from antifreeze.probes.patient.conduct import LISTENER, LONGEST_SOCKET, keep_temporary_files_in


@pytest.fixture
def config() -> Iterator[dict[str, Any]]:
    """Where multiprocessing keeps its temporary directory; as it was, afterwards."""
    own: dict[str, Any] = process.current_process()._config  # type: ignore[attr-defined]
    before = own.pop("tempdir", None)
    yield own
    own["tempdir"] = before


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="af-", dir="/tmp") as name:
        yield Path(name)


def test_sockets_go_where_all_is_removed(folder: Path, config: dict[str, Any]) -> None:
    keep_temporary_files_in(folder / "mp")
    with Listener(family="AF_UNIX") as listener:
        assert str(listener.address).startswith(str(folder / "mp"))


def test_the_longest_directory_that_is_used_has_room_for_a_socket(folder: Path, config: dict[str, Any]) -> None:
    longest = folder / ("d" * (LONGEST_SOCKET - LISTENER - len(str(folder)) - 1))
    keep_temporary_files_in(longest)
    assert config["tempdir"] == str(longest)
    with Listener(family="AF_UNIX") as listener:
        assert len(str(listener.address)) == LONGEST_SOCKET


def test_a_directory_that_is_too_long_for_a_socket_is_not_used(folder: Path, config: dict[str, Any]) -> None:
    too_long = folder / ("d" * (LONGEST_SOCKET - LISTENER - len(str(folder))))
    keep_temporary_files_in(too_long)
    assert config.get("tempdir") is None
    assert not too_long.exists()
    with socket.socket(socket.AF_UNIX) as unbound, pytest.raises(OSError, match="too long"):
        unbound.bind(f"{too_long}/listener-12345678")
