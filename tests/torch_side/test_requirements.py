"""What a torch lacks is named, and fails no import."""

from collections.abc import Callable

import pytest
import torch

from antifreeze.torch_side import names, requirements
from user_scripts import Ended

BATCHES = [torch.tensor([number]) for number in range(3)]


def test_this_torch_has_everything() -> None:
    assert names.missing == []
    assert requirements.why_unfit() is None


def test_a_missing_name_is_noted_and_fails_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "missing", [])
    refuse = names.required("torch._utils:_no_such_name")
    assert names.missing == ["torch._utils._no_such_name"]
    assert "does not have torch._utils._no_such_name" in str(requirements.why_unfit.__wrapped__())
    with pytest.raises(AttributeError, match="this torch has no"):
        refuse()


def test_an_optional_name_has_something_in_its_place() -> None:
    assert names.optional("torch.no_such_module:name", 1) == 1
    assert names.optional("torch:no.such.name", 2) == 2
    assert names.missing == []


def test_a_signature_that_is_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def generate_state(base_seed: int) -> None:
        """Takes less than it did."""

    monkeypatch.setattr(requirements.workers, "generate_state", generate_state)
    assert "generate_state(base_seed, worker)" in str(requirements.why_unfit.__wrapped__())


@pytest.mark.parametrize("gone", ["dataloader:_MultiProcessingDataLoaderIter", "_utils.worker:_generate_state"])
def test_on_a_torch_of_tomorrow_torchs_own_loader_serves(run_script: Callable[..., Ended], gone: str) -> None:
    """Torch finds its own classes under other names, and we do not."""
    module, name = gone.split(":")
    ended = run_script(
        f"""
import torch.utils.data.{module} as theirs
class Hidden(type(theirs)):
    def __getattribute__(self, name):
        if name == {name!r}:
            raise AttributeError(name)
        return super().__getattribute__(name)
theirs.__class__ = Hidden
from antifreeze import DataLoader
print([list(DataLoader(range(3), num_workers=workers)) for workers in (0, 1)])
""",
        env={"ANTIFREEZE": ""},
    ).check()
    assert ended.stdout == f"{[BATCHES] * 2}\n"
    assert "this loader runs on torch's own iterator: torch " in ended.stderr
    assert f"does not have torch.utils.data.{module}.{name}" in ended.stderr


OLD_TORCH = """
import torch, torch.utils.data as data
init = data.DataLoader.__init__
def old_init(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None,
             pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None, multiprocessing_context=None,
             generator=None, *, prefetch_factor=None, persistent_workers=False, pin_memory_device=""):
    init(**locals())
data.DataLoader.__init__ = old_init
torch.__version__ = torch.torch_version.TorchVersion("2.5.1+cu124")
"""


def test_on_a_torch_before_2_6_torchs_own_loader_serves(run_script: Callable[..., Ended]) -> None:
    ended = run_script(
        f"{OLD_TORCH}\nimport antifreeze\nprint(data.DataLoader.__init__ is old_init)\n"
        "from antifreeze import DataLoader\n"
        "print([list(DataLoader(range(3), num_workers=workers)) for workers in (0, 1)])\n"
        "antifreeze.install()\nprint([list(data.DataLoader(range(3), num_workers=workers)) for workers in (0, 1)])",
        env={"ANTIFREEZE": ""},
    ).check()
    assert ended.stdout == "True\n" + f"{[BATCHES] * 2}\n" * 2
    assert ended.stderr == (
        "antifreeze: this loader runs on torch's own iterator: torch 2.5.1+cu124 does not have DataLoader(in_order=)\n"
    )
