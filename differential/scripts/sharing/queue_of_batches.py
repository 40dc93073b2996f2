"""Batches are put into a queue for another process."""

import sys
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset


def consume(incoming, outgoing):
    while (batch := incoming.get()) is not None:
        outgoing.put((batch[0].sum().item(), batch[1].tolist()))
    outgoing.put(None)


if __name__ == "__main__":
    context = mp.get_context(sys.argv[1])
    there, back = context.Queue(), context.Queue()
    consumer = context.Process(target=consume, args=(there, back))
    consumer.start()
    held = []
    for batch in DataLoader(
        TensorDataset(torch.arange(24.0).reshape(12, 2), torch.arange(12)),
        batch_size=5,
        num_workers=2,
        multiprocessing_context=context,
    ):
        there.put(batch)
        held.append(batch)
    there.put(None)
    while (answer := back.get()) is not None:
        print(answer)
    consumer.join()
    print(held, consumer.exitcode)
