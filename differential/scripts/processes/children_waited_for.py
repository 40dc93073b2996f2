"""The script waits for its own children: workers are not among those that it knows."""

# methods: fork
import os
import subprocess
from torch.utils.data import DataLoader

it = iter(DataLoader(range(8), batch_size=2, num_workers=2, persistent_workers=False))
print(next(it))
child = subprocess.Popen(["true"])
print(child.wait())
forked = os.fork()
if forked == 0:
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))
print([batch.tolist() for batch in it])
