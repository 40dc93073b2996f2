"""Settings of torch and NumPy that the trainer makes, as workers see them."""

# methods: fork spawn forkserver
import sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Settings(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, i):
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.backends.mkldnn.enabled,
            torch.backends.cudnn.benchmark,
            torch.is_anomaly_enabled(),
            torch.multiprocessing.get_sharing_strategy(),
            np.get_printoptions()["precision"],
            str(torch.tensor(1 / 3)),
            np.geterr()["divide"],
        )


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    torch.autograd.set_detect_anomaly(True)
    torch.backends.cudnn.benchmark, torch.backends.mkldnn.enabled = True, False
    np.set_printoptions(precision=3)
    np.seterr(divide="raise")
    torch.set_printoptions(precision=2)
    loader = DataLoader(Settings(), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1])
    print(*loader)
    with torch.no_grad():
        print(*loader)
    with torch.inference_mode():
        print(*loader)
