"""A stream from a server that the trainer runs in a thread; each worker has a connection of its own."""

import socketserver
import sys
import threading
import socket
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Remote(IterableDataset):
    def __init__(self, port):
        self.port = port

    def __iter__(self):
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"%d\n" % get_worker_info().id)
            for line in connection.makefile():
                yield int(line)


class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        number = int(self.rfile.readline())
        for k in range(4):
            self.wfile.write(b"%d\n" % (number * 10 + k))


if __name__ == "__main__":
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    method = "spawn" if sys.argv[1] == "fork" else sys.argv[1]
    print(
        list(DataLoader(Remote(server.server_address[1]), batch_size=2, num_workers=2, multiprocessing_context=method))
    )
    server.shutdown()
    server.server_close()
