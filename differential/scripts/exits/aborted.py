"""os.abort() in the middle of the loop."""

# methods: fork
import os
import resource
from torch.utils.data import DataLoader

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
it = iter(DataLoader(range(20), batch_size=2, num_workers=2))
print(next(it), flush=True)
os.abort()
