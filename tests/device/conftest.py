"""Tests that need an accelerator. Without one they are skipped; the others never are."""

import pytest
import torch

if (
    torch.accelerator.is_available()
):  # before any test looks for what it leaves behind: a device is opened once, for good
    torch.ones(1, device=torch.accelerator.current_accelerator()).cpu()
    torch.ones(1).pin_memory()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.accelerator.is_available():
        for item in items:
            if "device" in item.path.parts:
                item.add_marker(pytest.mark.skip(reason="there is no accelerator here"))
