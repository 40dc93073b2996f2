"""Context managers, finally blocks and ExitStack around a loop that is left by return, break and an error."""

import contextlib
import sys
from torch.utils.data import DataLoader


@contextlib.contextmanager
def phase(name):
    print("begin", name)
    try:
        yield
    finally:
        print("end", name)


def train(how):
    with phase(how):
        for number, batch in enumerate(
            DataLoader(range(12), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
        ):
            print(batch)
            if number == 2 and how == "return":
                return number
            if number == 2 and how == "break":
                break
            if number == 2 and how == "error":
                raise RuntimeError("left")
    return None


if __name__ == "__main__":
    for how in ("return", "break"):
        print(train(how))
    with contextlib.suppress(RuntimeError), contextlib.ExitStack() as stack:
        stack.callback(print, "closed")
        train("error")
