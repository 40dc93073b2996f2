"""A connection that __setstate__ opens: answers must not be mixed up between workers."""

# methods: spawn
import socket
import socketserver
import sys
import threading
from torch.utils.data import DataLoader, Dataset


class Client(Dataset):
    def __init__(self, port):
        self.port = port

    def __getstate__(self):
        return {"port": self.port}

    def __setstate__(self, state):
        self.port = state["port"]
        self.socket = socket.create_connection(("127.0.0.1", self.port))
        self.file = self.socket.makefile("rb")

    def __len__(self):
        return 400

    def __getitem__(self, i):
        self.socket.sendall(b"%d\n" % i)
        return i, int(self.file.readline())


class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"%d\n" % (int(line) * 2))


if __name__ == "__main__":
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rows = list(
        DataLoader(
            Client(server.server_address[1]), num_workers=2, batch_size=None, multiprocessing_context=sys.argv[1]
        )
    )
    print(len(rows), "wrong", sum(answer != 2 * i for i, answer in rows))
