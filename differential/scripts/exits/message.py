"""sys.exit("text") prints the text and ends with status 1."""

# methods: fork
import sys
from torch.utils.data import DataLoader

it = iter(DataLoader(range(20), batch_size=2, num_workers=2))
print(next(it))
sys.exit("that is all")
