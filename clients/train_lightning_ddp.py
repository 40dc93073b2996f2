"""Lightning on two ranks: it starts the second one itself, and gives both loaders a distributed sampler."""

import lightning
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from pictures import Pictures, small_network


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = small_network()

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = cross_entropy(self.network(images), labels)
        print(f"loss rank {self.global_rank} train {loss.item().hex()}", flush=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        loss = cross_entropy(self.network(images), labels)
        print(f"loss rank {self.global_rank} valid {loss.item().hex()}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    lightning.seed_everything(7, workers=True)
    train = DataLoader(
        Pictures(128, seed=1, augment=True), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True
    )
    valid = DataLoader(Pictures(64, seed=2, augment=False), batch_size=8, num_workers=2)
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        max_epochs=2,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), train, valid)


if __name__ == "__main__":
    main()
