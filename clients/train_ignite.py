"""ignite: its DeterministicEngine takes the loader apart and builds another one from the pieces."""

import torch
from ignite.engine import DeterministicEngine, Engine, Events
from ignite.utils import manual_seed
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from pictures import Pictures, small_network


def main() -> None:
    manual_seed(7)
    network = small_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)

    def train_step(engine, batch):
        images, labels = batch
        network.train()
        optimizer.zero_grad()
        loss = cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    def valid_step(engine, batch):
        images, labels = batch
        network.eval()
        with torch.no_grad():
            return cross_entropy(network(images), labels).item()

    trainer, validator = DeterministicEngine(train_step), Engine(valid_step)
    train = DataLoader(Pictures(64, seed=1, augment=True), batch_size=8, shuffle=True, num_workers=2)
    valid = DataLoader(
        Pictures(32, seed=2, augment=True), batch_size=8, num_workers=2, persistent_workers=True, drop_last=True
    )

    @trainer.on(Events.ITERATION_COMPLETED)
    def print_train_loss(engine):
        print("loss train", engine.state.output.hex(), flush=True)

    @validator.on(Events.ITERATION_COMPLETED)
    def print_valid_loss(engine):
        print("loss valid", engine.state.output.hex(), flush=True)

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        validator.run(valid)

    trainer.run(train, max_epochs=2)


if __name__ == "__main__":
    main()
