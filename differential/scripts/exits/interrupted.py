"""Ctrl-C, that is SIGINT to the trainer, in the middle of the loop."""
# cold: needs an interpreter of its own

# methods: fork
import os
import signal
from torch.utils.data import DataLoader

for number, batch in enumerate(DataLoader(range(20), batch_size=2, num_workers=2)):
    print(batch, flush=True)
    if number == 2:
        os.kill(os.getpid(), signal.SIGINT)
