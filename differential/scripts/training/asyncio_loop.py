"""A loop over batches in a coroutine, by run_in_executor and directly."""

# methods: fork spawn
import asyncio
import sys
from torch.utils.data import DataLoader


async def train(method):
    loop = asyncio.get_running_loop()
    it = iter(DataLoader(range(9), batch_size=2, num_workers=2, multiprocessing_context=method))
    while (batch := await loop.run_in_executor(None, next, it, None)) is not None:
        print(batch.tolist())
    for batch in DataLoader(range(4), batch_size=2, num_workers=1, multiprocessing_context=method):
        await asyncio.sleep(0)
        print(batch.tolist())


if __name__ == "__main__":
    asyncio.run(train(sys.argv[1]))
