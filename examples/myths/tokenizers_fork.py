"""Claim: tokenizers of Hugging Face that were used before the fork deadlock in workers."""

import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader, Dataset

from trying import outcome

TOKENIZER = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
TOKENIZER.pre_tokenizer = pre_tokenizers.Whitespace()
TEXTS = ["a b c"] * 5000


class Texts(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return len(TOKENIZER.encode_batch(TEXTS))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        TOKENIZER.encode_batch(TEXTS)
        loader = DataLoader(Texts(), num_workers=2, multiprocessing_context="fork")
        print(sum(len(batch) for batch in loader), "of 8 samples")
    else:
        print("used in the trainer, then in workers:", outcome(__file__, "here"))
        said = outcome(__file__, "here", variables={"TOKENIZERS_PARALLELISM": "true"})
        print("with TOKENIZERS_PARALLELISM=true, as its warning offers:", said)
