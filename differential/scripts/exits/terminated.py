"""SIGTERM to the trainer in the middle of the loop."""

# methods: fork
import os
import signal
from torch.utils.data import DataLoader

for batch in DataLoader(range(20), batch_size=2, num_workers=2):
    print(batch, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
