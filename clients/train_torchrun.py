"""torchrun --standalone --nproc-per-node 2 train_torchrun.py"""

import random

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from pictures import Pictures, small_network


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    np.random.seed(rank)
    random.seed(rank)
    train_set, valid_set = Pictures(128, seed=1, augment=True), Pictures(64, seed=2, augment=False)
    sampler = DistributedSampler(train_set, shuffle=True, seed=7)
    train = DataLoader(train_set, batch_size=8, sampler=sampler, num_workers=2)
    valid = DataLoader(
        valid_set,
        batch_size=8,
        sampler=DistributedSampler(valid_set, shuffle=False),
        num_workers=2,
        persistent_workers=True,
    )
    model = DistributedDataParallel(small_network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in train:
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            print(f"loss rank {rank} train {loss.item().hex()}", flush=True)
        model.eval()
        with torch.no_grad():
            for images, labels in valid:
                loss = cross_entropy(model(images), labels)
                print(f"loss rank {rank} valid {loss.item().hex()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
