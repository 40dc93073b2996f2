"""Programs as people write them, from source to diagnosis: the healthy raise no alarm, the sick are named.

The healthy ones are written after public examples; their links stand above them.
"""

from pathlib import Path

import pytest

from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.facts import Facts, Machine
from antifreeze.doctor.finding import Weight
from antifreeze.probes.source import read_source

# https://github.com/pytorch/examples/blob/main/mnist/main.py
MNIST = """
import argparse
import torch
from torchvision import datasets, transforms

def train(args, model, device, train_loader, optimizer, epoch):
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        if args.dry_run:
            break

def test(model, device, test_loader):
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)

def main():
    args = argparse.ArgumentParser().parse_args()
    train_kwargs = {'batch_size': args.batch_size}
    test_kwargs = {'batch_size': args.test_batch_size}
    if use_accel:
        accel_kwargs = {'num_workers': 1, 'persistent_workers': True, 'pin_memory': True, 'shuffle': True}
        train_kwargs.update(accel_kwargs)
        test_kwargs.update(accel_kwargs)
    dataset1 = datasets.MNIST('../data', train=True, download=True)
    train_loader = torch.utils.data.DataLoader(dataset1, **train_kwargs)
    test_loader = torch.utils.data.DataLoader(datasets.MNIST('../data', train=False), **test_kwargs)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)

if __name__ == '__main__':
    main()
"""

# https://github.com/pytorch/examples/blob/main/imagenet/main.py
IMAGENET = """
import torch.multiprocessing as mp
import torch.utils.data
import torchvision.datasets as datasets

def main_worker(gpu, ngpus_per_node, args):
    train_dataset = datasets.ImageFolder(traindir, transforms.Compose([transforms.ToTensor()]))
    train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset) if args.distributed else None
    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size, shuffle=(train_sampler is None),
        num_workers=args.workers, pin_memory=True, sampler=train_sampler)
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, epoch)

def train(train_loader, model, epoch):
    for i, (images, target) in enumerate(train_loader):
        images = images.to(device, non_blocking=True)
        losses.update(loss.item(), images.size(0))

if __name__ == '__main__':
    mp.spawn(main_worker, nprocs=2, args=(2, args))
"""

# https://github.com/huggingface/transformers/blob/main/examples/pytorch/text-classification/run_glue_no_trainer.py
GLUE = """
from accelerate import Accelerator
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

def main():
    accelerator = Accelerator()
    train_dataloader = DataLoader(train_dataset, shuffle=True, collate_fn=data_collator, batch_size=8)
    eval_dataloader = DataLoader(eval_dataset, collate_fn=data_collator, batch_size=8)
    model, optimizer, train_dataloader, eval_dataloader = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader)
    samples_seen = 0
    for epoch in range(starting_epoch, args.num_train_epochs):
        active_dataloader = accelerator.skip_first_batches(train_dataloader, resume_step)
        for step, batch in enumerate(active_dataloader):
            outputs = model(**batch)
            if completed_steps >= args.max_train_steps:
                break
        for step, batch in enumerate(eval_dataloader):
            predictions = outputs.logits.argmax(dim=-1)
            predictions, references = accelerator.gather((predictions, batch["labels"]))
            metric.add_batch(predictions=predictions, references=references)

if __name__ == "__main__":
    main()
"""

# https://lightning.ai/docs/pytorch/stable/data/datamodule.html
LIGHTNING = """
import lightning as L
from torch.utils.data import DataLoader, Dataset, random_split
from PIL import Image

class Images(Dataset):
    def __init__(self, root, transform=None):
        self.paths = sorted(root.glob("*.png"))
        self.transform = transform
        self.cache = {}
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = Image.open(self.paths[i]).convert("RGB")
        return self.transform(self.cache[i])

class Module(L.LightningDataModule):
    def setup(self, stage):
        self.train_set, self.val_set = random_split(Images(self.root), [55000, 5000])
    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=32, num_workers=4, persistent_workers=True)
    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=32, num_workers=4)

if __name__ == "__main__":
    L.Trainer().fit(model, datamodule=Module())
"""

# https://github.com/pytorch/vision/blob/main/references/classification/train.py
TORCHVISION = """
import torch
import torch.multiprocessing
import torchvision

def train_one_epoch(model, data_loader, metric_logger):
    for i, (image, target) in enumerate(metric_logger.log_every(data_loader, 10, "x")):
        image, target = image.to(device), target.to(device)

def main(args):
    dataset = torchvision.datasets.ImageFolder(args.path)
    train_sampler = torch.utils.data.RandomSampler(dataset)
    data_loader = torch.utils.data.DataLoader(
        dataset, batch_size=args.batch_size, sampler=train_sampler, num_workers=args.workers, pin_memory=True)
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train_one_epoch(model, data_loader, metric_logger)

if __name__ == "__main__":
    main(get_args_parser().parse_args())
"""

# https://github.com/webdataset/webdataset#the-webdataset-pipeline-api
WEBDATASET = """
import torch
import webdataset as wds

dataset = wds.WebDataset("train-{000..100}.tar", shardshuffle=100).shuffle(1000).decode("pil").to_tuple("jpg", "cls")
loader = torch.utils.data.DataLoader(dataset.batched(16), num_workers=4, batch_size=None)

def main():
    for inputs, outputs in loader:
        train(inputs, outputs)

if __name__ == "__main__":
    main()
"""

# https://docs.pytorch.org/docs/stable/notes/randomness.html#dataloader
REPRODUCIBLE = """
import random
import numpy
import torch
from torch.utils.data import DataLoader

def seed_worker(worker_id):
    worker_seed = torch.initial_seed() % 2**32
    numpy.random.seed(worker_seed)
    random.seed(worker_seed)

g = torch.Generator()
g.manual_seed(0)

if __name__ == "__main__":
    loader = DataLoader(train_dataset, num_workers=2, worker_init_fn=seed_worker, generator=g)
    for epoch in range(3):
        for batch in loader:
            train(batch)
"""

# https://docs.h5py.org/en/stable/mpi.html, and everywhere: the file is opened in the worker, on first use.
LAZY_HDF5 = """
import h5py
from torch.utils.data import DataLoader, Dataset

class Volumes(Dataset):
    def __init__(self, path):
        self.path, self.file, self.epoch = path, None, 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __getitem__(self, i):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return self.file["x"][i] + self.epoch

if __name__ == "__main__":
    ds = Volumes("x.h5")
    loader = DataLoader(ds, num_workers=2)
    losses = []
    for epoch in range(3):
        ds.set_epoch(epoch)
        for batch in loader:
            losses.append(step(batch).item())
    print(ds.epoch, ds.path)
"""

HEALTHY = {
    "mnist": MNIST,
    "imagenet": IMAGENET,
    "glue": GLUE,
    "lightning": LIGHTNING,
    "torchvision": TORCHVISION,
    "webdataset": WEBDATASET,
    "reproducible": REPRODUCIBLE,
    "lazy hdf5": LAZY_HDF5,
}


def alarms(script: str, directory: Path, *, start_method: str) -> list[str]:
    """Codes of what is found in the source and rated certain or likely."""
    path = directory / "train.py"
    path.write_text(script)
    machine = Machine(cpus=2, usable_cpus=2, start_method=start_method)
    found = diagnose(Facts(machine=machine, source=read_source(path)))
    return [finding.code for finding in found if finding.weight < Weight.POSSIBLE]


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_raises_no_alarm(name: str, start_method: str, tmp_path: Path) -> None:
    assert alarms(HEALTHY[name], tmp_path, start_method=start_method) == []


def test_without_its_guard_a_healthy_program_is_sick_where_workers_import_it(tmp_path: Path) -> None:
    script = WEBDATASET.replace('if __name__ == "__main__":\n    main()', "main()")
    assert alarms(script, tmp_path, start_method="spawn") == ["AF304"]
    assert alarms(script, tmp_path, start_method="fork") == []


def test_with_persistent_workers_a_dataset_that_changes_is_stale(tmp_path: Path) -> None:
    script = LAZY_HDF5.replace("num_workers=2", "num_workers=2, persistent_workers=True")
    assert alarms(script, tmp_path, start_method="fork") == ["AF503"]


def test_a_seed_of_the_worker_alone_repeats_every_epoch(tmp_path: Path) -> None:
    script = REPRODUCIBLE.replace("torch.initial_seed() % 2**32", "worker_id + 1")
    assert alarms(script, tmp_path, start_method="fork") == ["AF505"]
    assert (
        alarms(script.replace("_workers=2", "_workers=2, persistent_workers=True"), tmp_path, start_method="fork") == []
    )


def test_a_comment_hushes_a_finding(tmp_path: Path) -> None:
    script = LAZY_HDF5.replace("num_workers=2", "num_workers=2, persistent_workers=True")
    script = script.replace("ds.set_epoch(epoch)", "ds.set_epoch(epoch)  # antifreeze: ignore[AF503]")
    assert alarms(script, tmp_path, start_method="fork") == []
