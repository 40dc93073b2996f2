"""Lightning on one process: fit with a validation set, then predict, for which Lightning builds the loader anew."""

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
        print("loss train", loss.item().hex(), flush=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        loss = cross_entropy(self.network(images), labels)
        print("loss valid", loss.item().hex(), flush=True)

    def predict_step(self, batch, batch_idx):
        images, _ = batch
        return self.network(images).logsumexp(1)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Data(lightning.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(Pictures(64, seed=1, augment=True), batch_size=8, shuffle=True, num_workers=2)

    def val_dataloader(self):
        return DataLoader(Pictures(32, seed=2, augment=True), batch_size=8, num_workers=2, persistent_workers=True)

    def predict_dataloader(self):
        return DataLoader(Pictures(32, seed=3, augment=True), batch_size=8, num_workers=2)


def main() -> None:
    lightning.seed_everything(7, workers=True)
    model, data = Classifier(), Data()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data)
    for scores in trainer.predict(model, data):
        print("loss predict", scores.mean().item().hex(), flush=True)


if __name__ == "__main__":
    main()
