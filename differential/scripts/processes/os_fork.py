"""The script forks itself: with loaders before, in the child, and after."""

# methods: fork
import os
import sys
from torch.utils.data import DataLoader

loader = DataLoader(range(6), batch_size=2, num_workers=1)
print([batch.tolist() for batch in loader], flush=True)
child = os.fork()
if child == 0:
    print("child", [batch.tolist() for batch in loader], flush=True)
    os._exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print([batch.tolist() for batch in loader])
