"""What a script prints and writes at its top level: spawned workers run it again."""
# cold: needs an interpreter of its own

# methods: fork
import os
import sys
from torch.utils.data import DataLoader

with open("imported.txt", "a") as file:
    file.write(f"{__name__}\n")

if __name__ == "__main__":
    print(list(DataLoader(range(4), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])))
