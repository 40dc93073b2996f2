"""Noticing that the dataset asks which worker it is in, whatever the program has made of torch's function."""

import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from torch.utils.data._utils import worker as torch_worker

from antifreeze.engine.arena import board as boards
from antifreeze.engine.worker.notices import Notices, watch_questions


@pytest.fixture
def notices() -> Iterator[Notices]:
    board = boards.create()
    yield Notices(board)
    board.close()


def wrapped(function: Callable[[], Any]) -> Callable[[], Any]:
    @functools.wraps(function)
    def shim() -> Any:
        return function()

    return shim


def wrapped_without_a_trace(function: Callable[[], Any]) -> Callable[[], Any]:
    def shim() -> Any:
        return function()

    return shim


def own(_: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: "the program's own answer"


def mock(_: Callable[[], Any]) -> Callable[[], Any]:
    return Mock(return_value="the mock's answer")


def torchs(function: Callable[[], Any]) -> Callable[[], Any]:
    return function


@pytest.mark.parametrize("patch", [torchs, wrapped], ids=lambda patch: patch.__name__)
def test_the_question_is_noticed_when_it_comes(patch: Any, notices: Notices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_worker, "get_worker_info", patch(torch_worker.get_worker_info))
    monkeypatch.setattr(torch_worker, "_worker_info", "the worker")
    watch_questions(notices)
    assert not notices.has_asked
    assert torch_worker.get_worker_info() == "the worker"
    assert notices.has_asked


@pytest.mark.parametrize("patch", [wrapped_without_a_trace, own, mock], ids=lambda patch: patch.__name__)
def test_where_it_cannot_be_noticed_nothing_changes_and_it_counts_as_asked(
    patch: Any, notices: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched = patch(torch_worker.get_worker_info)
    answer = patched()
    monkeypatch.setattr(torch_worker, "get_worker_info", patched)
    stop = watch_questions(notices)
    assert torch_worker.get_worker_info() == answer
    assert notices.has_asked
    stop()
