"""A program, written to files and read."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from antifreeze.doctor.facts import Source
from antifreeze.probes.source import read_source

Read = Callable[..., Source]

HEAD = """
import multiprocessing as mp
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
"""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes a script, and modules by their dotted names, below one directory; reads it."""

    def read(script: str, /, modules: dict[str, str] | None = None, *, name: str = "train.py") -> Source:
        for dotted, text in {name.removesuffix(".py"): script, **(modules or {})}.items():
            path = tmp_path / f"{dotted.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return read_source(tmp_path / name)

    return read


@pytest.fixture
def read_dataset(read: Read) -> Read:
    """Reads the body of one dataset class, and what comes after it."""

    def read_dataset(body: str, after: str = "", *, base: str = "Dataset") -> Source:
        text = f"{HEAD}class Mine({base}):\n" + textwrap.indent(textwrap.dedent(body), "    ")
        return read(f"{text}\n{textwrap.dedent(after)}")

    return read_dataset
