"""A pytest plugin: from here on, `torch.utils.data.DataLoader` is ours, for whoever imports it later."""

from __future__ import annotations

import torch.utils.data
import torch.utils.data.dataloader

import antifreeze

torch.utils.data.DataLoader = antifreeze.DataLoader  # type: ignore[misc]
torch.utils.data.dataloader.DataLoader = antifreeze.DataLoader  # type: ignore[misc]
antifreeze.install()
