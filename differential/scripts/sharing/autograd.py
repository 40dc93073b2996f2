"""Samples by autograd in workers, detached; and batches that take part in autograd."""

import sys
import torch
from torch.utils.data import DataLoader, Dataset


class Gradients(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        x = torch.tensor([float(i), 1.0], requires_grad=True)
        (x**3).sum().backward()
        with torch.no_grad():
            return x.detach(), x.grad


if __name__ == "__main__":
    weight = torch.ones(2, requires_grad=True)
    for x, grad in DataLoader(Gradients(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]):
        x.requires_grad_()
        loss = (x * weight * grad).sum()
        loss.backward()
        print(loss.item(), x.grad.tolist(), x.is_leaf)
    print(weight.grad)
