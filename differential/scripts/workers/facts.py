"""What get_worker_info says, in the trainer, in workers and in what they call."""

# methods: fork spawn forkserver
import sys
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Facts(Dataset):
    def __init__(self):
        self.tag = "tag"

    def __len__(self):
        return 4

    def __getitem__(self, i):
        info = get_worker_info()
        return (
            i,
            info.id,
            info.num_workers,
            info.dataset is self,
            info.dataset.tag,
            sorted(vars(info)),
            torch.utils.data._utils.worker.get_worker_info() is info,
        )


def begin(number):
    info = get_worker_info()
    info.dataset.tag = f"tag of {number}"
    try:
        info.id = 3
    except RuntimeError as error:
        info.dataset.tag += f", {str(error)[:20]}"


if __name__ == "__main__":
    dataset = Facts()
    for row in DataLoader(
        dataset, batch_size=None, num_workers=2, worker_init_fn=begin, multiprocessing_context=sys.argv[1]
    ):
        print(row)
    print(get_worker_info(), dataset.tag)
