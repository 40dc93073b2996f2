"""Lightning, stopped in mid-epoch and resumed in another process: its checkpoints hold the state of a loader that has one.

resume_lightning.py                     in one go
resume_lightning.py --stop-after 11     as far as a checkpoint in mid-epoch, and one step more
resume_lightning.py --resume            from there on
"""

import sys
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

from antifreeze import StatefulDataLoader
from pictures import Pictures, small_network

CHECKPOINT = Path("checkpoint.ckpt")


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = small_network()

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = cross_entropy(self.network(images), labels)
        print(f"loss step {self.global_step} {loss.item().hex()}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def train_dataloader(self):
        return StatefulDataLoader(Pictures(64, seed=1, augment=True), batch_size=8, shuffle=True, num_workers=2)


def main() -> None:
    words = sys.argv[1:]
    stop_after = int(words[1]) if "--stop-after" in words else None
    lightning.seed_everything(7, workers=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=3,
        max_steps=stop_after + 1 if stop_after else -1,
        callbacks=[ModelCheckpoint(".", CHECKPOINT.stem, every_n_train_steps=stop_after)] if stop_after else None,
        enable_checkpointing=stop_after is not None,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), ckpt_path=CHECKPOINT if "--resume" in words else None)


if __name__ == "__main__":
    main()
