"""Tests that need an accelerator. Without one they are skipped."""

import pytest
import torch

from leftovers import open_accelerator

open_accelerator()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.accelerator.is_available():
        for item in items:
            if "device" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason="there is no accelerator here"))
