"""A DistributedSampler in a loop over epochs, and whether it learns which epoch it is."""

import pytest

from antifreeze.doctor.checks.same_order_every_epoch import same_order_every_epoch
from antifreeze.doctor.facts import Facts
from antifreeze.doctor.finding import Weight

from .conftest import HEAD, Read

SCRIPT = """
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler
def train(ds, args):
    sampler = SAMPLER
    loader = DataLoader(ds, num_workers=2, ARGUMENT=sampler)
    for epoch in range(args.epochs):
        EPOCH
        for batch in loader:
            pass
"""


def weights(
    read: Read, sampler: str, *, argument: str = "sampler", epoch: str = "pass", more: str = ""
) -> list[Weight]:
    script = SCRIPT.replace("SAMPLER", sampler).replace("ARGUMENT", argument).replace("EPOCH", epoch)
    return [finding.weight for finding in same_order_every_epoch.examine(Facts(source=read(HEAD + more + script)))]


@pytest.mark.parametrize(
    "sampler",
    [
        "DistributedSampler(ds)",
        "DistributedSampler(ds, shuffle=True, drop_last=True)",
        "torch.utils.data.DistributedSampler(ds) if args.distributed else None",
    ],
)
def test_an_order_that_nobody_changes_is_told_with_its_line(read: Read, sampler: str) -> None:
    assert weights(read, sampler) == [Weight.LIKELY]


def test_a_sampler_inside_another_one_counts(read: Read) -> None:
    assert weights(read, "BatchSampler(DistributedSampler(ds), 8, False)", argument="batch_sampler") == [Weight.LIKELY]


def test_what_may_not_shuffle_at_all_is_only_possible(read: Read) -> None:
    assert weights(read, "DistributedSampler(ds, shuffle=args.shuffle)") == [Weight.POSSIBLE]
    assert weights(read, "DistributedSampler(ds, **args.more)") == [Weight.POSSIBLE]


def test_who_does_not_shuffle_or_has_no_such_sampler_is_well(read: Read) -> None:
    assert weights(read, "DistributedSampler(ds, shuffle=False)") == []
    assert weights(read, "DistributedSampler(ds, 2, 0, False)") == []
    assert weights(read, "torch.utils.data.RandomSampler(ds)") == []


def test_who_tells_the_epoch_or_has_it_told_is_well(read: Read) -> None:
    assert weights(read, "DistributedSampler(ds)", epoch="sampler.set_epoch(epoch)") == []
    assert weights(read, "DistributedSampler(ds)", epoch="loader.sampler.set_epoch(epoch)") == []
    assert weights(read, "DistributedSampler(ds)", more="from lightning.pytorch import Trainer\n") == []
    assert weights(read, "DistributedSampler(ds)", more="import accelerate\n") == []


def test_one_epoch_needs_no_number(read: Read) -> None:
    script = SCRIPT.replace("SAMPLER", "DistributedSampler(ds)").replace("ARGUMENT", "sampler").replace("EPOCH", "pass")
    once = script.replace("    for epoch in range(args.epochs):", "    if args:")
    assert same_order_every_epoch.examine(Facts(source=read(HEAD + once))) == []
