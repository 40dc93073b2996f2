"""Lightning Fabric: one's own loop, loaders handed to `setup_dataloaders`."""

import torch
from lightning.fabric import Fabric, seed_everything
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from pictures import Pictures, small_network


def main() -> None:
    seed_everything(7, workers=True)
    fabric = Fabric(accelerator="cpu", devices=1)
    network = small_network()
    network, optimizer = fabric.setup(network, torch.optim.Adam(network.parameters(), lr=0.01))
    train, valid = fabric.setup_dataloaders(
        DataLoader(Pictures(64, seed=1, augment=True), batch_size=8, shuffle=True, num_workers=2),
        DataLoader(Pictures(32, seed=2, augment=True), batch_size=8, num_workers=2, persistent_workers=True),
    )
    for _ in range(2):
        network.train()
        for images, labels in train:
            optimizer.zero_grad()
            loss = cross_entropy(network(images), labels)
            fabric.backward(loss)
            optimizer.step()
            print("loss train", loss.item().hex(), flush=True)
        network.eval()
        with torch.no_grad():
            for images, labels in valid:
                print("loss valid", cross_entropy(network(images), labels).item().hex(), flush=True)


if __name__ == "__main__":
    main()
