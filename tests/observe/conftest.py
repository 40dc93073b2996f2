"""Every test starts with a state folder of its own, and alone in its job."""

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from antifreeze.observe import files


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "_made", None)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("ANTIFREEZE_DIR", str(tmp_path / "state"))


@pytest.fixture
def largest_file(capsys: pytest.CaptureFixture[str]) -> Callable[[int], AbstractContextManager[None]]:
    """No file of this process may grow beyond so many bytes, as on a full disk; pytest's own are kept in memory."""

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limited
