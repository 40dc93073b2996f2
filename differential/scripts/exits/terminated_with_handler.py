"""A handler of SIGTERM asks the loop to end, as on clusters."""

# methods: fork spawn
import os
import signal
import sys
from torch.utils.data import DataLoader

stop = False


def ask_to_stop(number, frame):
    global stop
    stop = True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, ask_to_stop)
    for number, batch in enumerate(
        DataLoader(range(20), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    ):
        print(batch)
        if number == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        if stop:
            print("stopping")
            break
    sys.exit(75)
