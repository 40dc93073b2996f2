"""A trainer with a DistributedSampler and snapshots, here as the only rank: in the style of PyTorch's DDP tutorial.

https://github.com/pytorch/examples/blob/main/distributed/ddp-tutorial-series/multigpu_torchrun.py
"""

import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class MyTrainDataset(Dataset):
    def __init__(self, size):
        self.size = size
        self.data = [(torch.rand(20), torch.rand(1)) for _ in range(size)]

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return (*self.data[index], index)


class Trainer:
    def __init__(self, model, train_data, optimizer, save_every, snapshot_path):
        self.model, self.train_data, self.optimizer = model, train_data, optimizer
        self.save_every, self.snapshot_path, self.epochs_run = save_every, snapshot_path, 0
        if os.path.exists(snapshot_path):
            self._load_snapshot()

    def _load_snapshot(self):
        snapshot = torch.load(self.snapshot_path, weights_only=True)
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]

    def _save_snapshot(self, epoch):
        torch.save({"MODEL_STATE": self.model.state_dict(), "EPOCHS_RUN": epoch + 1}, self.snapshot_path)

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        order = []
        for source, targets, index in self.train_data:
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(source), targets)
            loss.backward()
            self.optimizer.step()
            order += index.tolist()
        print(
            f"[rank {self.train_data.sampler.rank}] epoch {epoch}, steps {len(self.train_data)}, loss {loss.item():.3f}"
        )
        return order

    def train(self, max_epochs):
        orders = []
        for epoch in range(self.epochs_run, max_epochs):
            orders.append(self._run_epoch(epoch))
            if epoch % self.save_every == 0:
                self._save_snapshot(epoch)
        return orders


def prepare_dataloader(dataset, batch_size):
    rank, world_size = int(os.environ.get("MY_RANK", "0")), int(os.environ.get("MY_WORLD_SIZE", "1"))
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    return DataLoader(dataset, batch_size=batch_size, shuffle=False, num_workers=2, sampler=sampler)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        model = nn.Linear(20, 1)
        loader = prepare_dataloader(MyTrainDataset(256), batch_size=32)
        trainer = Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=1e-3), 1, f"{folder}/snapshot.pt")
        orders = trainer.train(3)
    assert all(sorted(order) == list(range(256)) for order in orders)
    assert orders[0] != orders[1]
    print("OK")


if __name__ == "__main__":
    main()
