"""Objects that are told apart by `is`, or are keys of a dict; a lock that is held has workers start afresh."""
# cold: needs an interpreter of its own

# methods: fork
import threading

from torch.utils.data import DataLoader, Dataset

UNSET = object()


class Null:
    def __bool__(self):
        return False


class Bare:
    __slots__ = ()


class Token:
    def __init__(self, text):
        self.text = text


NULL, BARE, BOS, EOS = Null(), Bare(), Token("<s>"), Token("</s>")


def is_given(value=UNSET):
    return value is not UNSET


class Tokens(Dataset):
    NONE = object()

    def __init__(self, default=UNSET):
        self.lock = threading.Lock()
        self.default = default
        self.values = [NULL, BARE, self.NONE, 3]
        self.numbers = {BOS: 1, EOS: 2}

    def __len__(self):
        return 4

    def __getitem__(self, i):
        value = self.values[i]
        kind = "null" if value is NULL else "bare" if value is BARE else "none" if value is Tokens.NONE else value
        return kind, is_given(self.default), self.numbers[BOS], self.numbers[EOS], [each.text for each in self.numbers]


if __name__ == "__main__":
    BOS.text = "<bos>"
    dataset = Tokens()
    dataset.lock.acquire()
    for sample in DataLoader(dataset, num_workers=2, batch_size=None):
        print(sample)
