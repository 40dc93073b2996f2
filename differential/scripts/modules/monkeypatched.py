"""Functions that are replaced at import, and in the main guard."""

# methods: fork spawn
import json
import sys
from torch.utils.data import DataLoader, Dataset

original = json.loads
json.loads = lambda text: {"patched": original(text)}


def decode(text):
    return json.loads(text)


class Decoding(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return repr(decode(f"[{i}]"))


if __name__ == "__main__":
    print(*DataLoader(Decoding(), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]))
    Decoding.__getitem__ = lambda self, i: f"replaced {i}"
    if sys.argv[1] == "fork":
        print(*DataLoader(Decoding(), num_workers=1, batch_size=None, multiprocessing_context=sys.argv[1]))
