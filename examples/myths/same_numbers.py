"""Claim: `np.random` draws the same numbers in every worker; seed it in `worker_init_fn`."""

import numpy as np
from torch.utils.data import DataLoader, Dataset


class Draws(Dataset[int]):
    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return int(np.random.randint(2**62))


class OwnDraws(Draws):
    def __getitem__(self, index: int) -> int:
        return int(self.generator.integers(2**62))


def seed_by_number(worker: int) -> None:
    np.random.seed(worker)


def distinct(dataset: Draws, **options: object) -> str:
    loader = DataLoader(dataset, batch_size=4, num_workers=2, **options)  # type: ignore[arg-type]
    draws = [number for _ in range(2) for batch in loader for number in batch.tolist()]
    return f"{len(set(draws))} different of {len(draws)}"


if __name__ == "__main__":
    print("np.random, 2 workers, 2 epochs:", distinct(Draws()))
    print("with worker_init_fn=np.random.seed(worker_id):", distinct(Draws(), worker_init_fn=seed_by_number))
    print("a Generator in the dataset:", distinct(OwnDraws()))
