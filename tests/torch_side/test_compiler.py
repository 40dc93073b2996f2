"""A compiled function may loop over a loader: our code is left to Python."""

from collections.abc import Callable
from pathlib import Path

import pytest

from user_scripts import Ended

BUILD = {
    "our class": "from antifreeze import DataLoader",
    "installed": "import antifreeze; antifreeze.install(); from torch.utils.data import DataLoader",
}
COMPILE = """
import torch

@torch.compile(backend="eager")
def total(loader):
    total = torch.zeros(())
    for batch in loader:
        total = total + batch.sum()
    return total

class Numbers:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor(float(index))

for workers in (0, 2):
    print(total(DataLoader(Numbers(), batch_size=2, num_workers=workers)).item())

from torch._dynamo import trace_rules
import antifreeze.iterator
print(trace_rules.check_file(antifreeze.iterator.__file__).skipped)
"""


@pytest.mark.usefixtures("not_for_torch")
@pytest.mark.parametrize(("build", "first"), [("our class", "loader"), ("installed", "compiler")])
def test_our_code_is_not_compiled(run_script: Callable[..., Ended], tmp_path: Path, build: str, first: str) -> None:
    imported_first = "import torch._dynamo\n" if first == "compiler" else ""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    ended = run_script(imported_first + BUILD[build] + COMPILE, env=cache)
    assert ended.check().stdout.split() == ["28.0", "28.0", "True"]
    assert "antifreeze" not in ended.stderr
