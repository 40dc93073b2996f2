"""Samples with a connection or a socket in them, as datasets return that have more to say later: they arrive open."""

# methods: fork spawn
import multiprocessing
import socket
import sys
from multiprocessing.reduction import ForkingPickler

from torch.utils.data import DataLoader, Dataset


class Celsius:
    """A class that a worker teaches multiprocessing to send in another form."""

    def __init__(self, degrees):
        self.degrees = degrees


def reduce_celsius(celsius):
    return float, (celsius.degrees + 273.0,)


def teach(worker):
    ForkingPickler.register(Celsius, reduce_celsius)


class Readings(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        here, there = multiprocessing.Pipe()
        here.send(f"reading {i}")
        near, far = socket.socketpair()
        near.sendall(b"%d" % i)
        near.close()
        return there, far, Celsius(i)


def as_they_are(samples):
    return samples


def main():
    method = sys.argv[1]
    loader = DataLoader(
        Readings(),
        batch_size=2,
        num_workers=2,
        collate_fn=as_they_are,
        worker_init_fn=teach,
        multiprocessing_context=method,
    )
    for batch in loader:
        for connection, far, temperature in batch:
            print(connection.recv(), far.recv(10), temperature)
            connection.close()
            far.close()


if __name__ == "__main__":
    main()
