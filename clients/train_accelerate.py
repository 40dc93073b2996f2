"""accelerate: `python train_accelerate.py`, `accelerate launch train_accelerate.py`, or torchrun for several processes."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from pictures import Pictures, small_network


def main() -> None:
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    set_seed(7)
    network = small_network()
    train = DataLoader(Pictures(128, seed=1, augment=True), batch_size=8, shuffle=True, num_workers=2)
    valid = DataLoader(Pictures(60, seed=2, augment=True), batch_size=8, num_workers=2, persistent_workers=True)
    network, optimizer, train, valid = accelerator.prepare(
        network, torch.optim.Adam(network.parameters(), lr=0.01), train, valid
    )
    for _ in range(2):
        network.train()
        for images, labels in train:
            with accelerator.accumulate(network):
                loss = cross_entropy(network(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            print(f"loss rank {rank} train {loss.item().hex()}", flush=True)
        network.eval()
        for images, labels in valid:
            with torch.no_grad():
                outputs, wanted = accelerator.gather_for_metrics((network(images), labels))
            print(f"loss rank {rank} valid {cross_entropy(outputs, wanted).item().hex()}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
