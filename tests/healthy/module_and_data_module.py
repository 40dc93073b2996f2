"""A module with its steps, a data module with its loaders, and a trainer that calls both: in the style of Lightning.

https://github.com/Lightning-AI/pytorch-lightning/blob/master/examples/pytorch/basics/backbone_image_classifier.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Waves(Dataset):
    """Sine or square, with some noise that is drawn anew each time."""

    def __len__(self):
        return 240

    def __getitem__(self, index):
        wave = torch.sin(torch.linspace(0, 6 + index % 5, 32))
        wave = wave.sign() if index % 2 else wave
        return wave + 0.1 * torch.randn(32), index % 2


class WavesDataModule:
    def __init__(self, batch_size=16):
        self.batch_size = batch_size

    def setup(self):
        waves = Waves()
        self.waves_train, self.waves_val = Subset(waves, range(200)), Subset(waves, range(200, 240))

    def train_dataloader(self):
        return DataLoader(
            self.waves_train, batch_size=self.batch_size, shuffle=True, num_workers=2, persistent_workers=True
        )

    def val_dataloader(self):
        return DataLoader(self.waves_val, batch_size=self.batch_size, num_workers=2, persistent_workers=True)


class WaveClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2))
        self.outputs = []

    def training_step(self, batch, batch_idx):
        waves, labels = batch
        return nn.functional.cross_entropy(self.layers(waves), labels)

    def validation_step(self, batch, batch_idx):
        waves, labels = batch
        self.outputs.append((self.layers(waves).argmax(1) == labels).sum().item())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Trainer:
    def __init__(self, max_epochs, num_sanity_val_steps=2):
        self.max_epochs, self.num_sanity_val_steps = max_epochs, num_sanity_val_steps

    def fit(self, model, datamodule):
        datamodule.setup()
        optimizer = model.configure_optimizers()
        train, val = datamodule.train_dataloader(), datamodule.val_dataloader()
        self.validate(model, val, limit=self.num_sanity_val_steps)
        for _ in range(self.max_epochs):
            model.train()
            for batch_idx, batch in enumerate(train):
                optimizer.zero_grad()
                model.training_step(batch, batch_idx).backward()
                optimizer.step()
            self.validate(model, val)

    def validate(self, model, loader, limit=None):
        model.eval()
        model.outputs.clear()
        with torch.no_grad():
            for batch_idx, batch in enumerate(loader):
                if limit is not None and batch_idx >= limit:
                    break
                model.validation_step(batch, batch_idx)
        print(f"validation: {sum(model.outputs)} right")


def main():
    torch.manual_seed(0)
    model = WaveClassifier()
    Trainer(max_epochs=4).fit(model, WavesDataModule())
    assert sum(model.outputs) > 32, model.outputs
    print("OK")


if __name__ == "__main__":
    main()
