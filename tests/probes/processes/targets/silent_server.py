"""Freezes: a server takes the question and never answers."""

import socket
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

SERVER = socket.create_server(("127.0.0.1", 0))


class Remote(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i != 3:
            return i
        with socket.create_connection(SERVER.getsockname()) as line:
            Path("frozen").touch()
            return len(line.recv(100))


if __name__ == "__main__":
    for _ in DataLoader(Remote(), batch_size=2, num_workers=2):
        pass
