"""What every process that the trainer starts would have: captured as plain data."""

import pickle

import pytest

from antifreeze.engine.crossing.main_module import MainModule
from antifreeze.engine.crossing.state import Surroundings, capture_surroundings


def test_surroundings_are_captured_as_plain_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE_SEEN", "yes")
    captured = capture_surroundings(MainModule(None, None, frozenset()))
    arrived: Surroundings = pickle.loads(pickle.dumps(captured))
    assert arrived.environ["ANTIFREEZE_SEEN"] == "yes"
    assert "init_main_from_path" not in arrived.preparation
