"""Looks sick: a thread is alive when workers are forked, samples come from the net, and an `except`. But nothing is lost.

The thread serves HTTP and is not needed in a worker; every read has a time-out; the `except` tries again, then raises.
"""

import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N = 60


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        number = int(self.path.strip("/"))
        body = ",".join(str((number * step) % 7 / 7) for step in range(1, 9)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Remote(Dataset):
    def __init__(self, address):
        self.address = address

    def __len__(self):
        return N

    def fetch(self, index):
        with urllib.request.urlopen(f"{self.address}/{index}", timeout=10) as answer:
            return [float(value) for value in answer.read().split(b",")]

    def __getitem__(self, index):
        for attempt in range(3):
            try:
                return torch.tensor(self.fetch(index)), index
            except urllib.error.URLError as error:
                if attempt == 2:
                    raise RuntimeError(f"sample {index} cannot be had") from error
        raise AssertionError("not reached")


def main():
    torch.manual_seed(0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        loader = DataLoader(Remote(f"http://127.0.0.1:{server.server_port}"), batch_size=6, shuffle=True, num_workers=2)
        model = nn.Linear(8, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(3):
            indices = []
            for x, index in loader:
                loss = nn.functional.mse_loss(model(x).squeeze(1), x.mean(1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                indices += index.tolist()
            assert sorted(indices) == list(range(N))
    finally:
        server.shutdown()
        server.server_close()
    print("OK")


if __name__ == "__main__":
    main()
