"""Sentences, tokenized in the trainer, padded to the longest of their batch in the workers: in the style of run_glue.

https://github.com/huggingface/transformers/blob/main/examples/pytorch/text-classification/run_glue_no_trainer.py
"""

import random
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.utils.data import DataLoader

GOOD, BAD = ("fine", "lovely", "bright"), ("awful", "dull", "broken")
FILLER = ("the", "film", "was", "and", "rather", "very", "a", "story")


def make_sentences(count):
    draw = random.Random(0)
    rows = []
    for number in range(count):
        label = number % 2
        words = [*draw.choices(FILLER, k=draw.randint(2, 12)), draw.choice(GOOD if label else BAD)]
        draw.shuffle(words)
        rows.append({"sentence": " ".join(words), "label": label})
    return rows


def make_tokenizer():
    words = ["[PAD]", "[UNK]", *FILLER, *GOOD, *BAD]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


@dataclass
class DataCollatorWithPadding:
    pad_id: int

    def __call__(self, features):
        longest = max(len(feature["input_ids"]) for feature in features)
        ids = torch.full((len(features), longest), self.pad_id)
        for row, feature in enumerate(features):
            ids[row, : len(feature["input_ids"])] = torch.tensor(feature["input_ids"])
        return {
            "input_ids": ids,
            "attention_mask": (ids != self.pad_id).long(),
            "labels": torch.tensor([feature["labels"] for feature in features]),
        }


class Classifier(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, 8), nn.Linear(8, 2)

    def forward(self, input_ids, attention_mask, labels):
        mask = attention_mask.unsqueeze(-1)
        logits = self.head((self.embedding(input_ids) * mask).sum(1) / mask.sum(1))
        return nn.functional.cross_entropy(logits, labels), logits


def main():
    torch.manual_seed(0)
    rows, tokenizer = make_sentences(400), make_tokenizer()
    encoded = tokenizer.encode_batch([row["sentence"] for row in rows])
    features = [{"input_ids": line.ids, "labels": row["label"]} for line, row in zip(encoded, rows, strict=True)]
    collator = DataCollatorWithPadding(pad_id=0)
    train = DataLoader(features[:320], shuffle=True, collate_fn=collator, batch_size=16, num_workers=2)
    evaluation = DataLoader(features[320:], collate_fn=collator, batch_size=16, num_workers=2)

    model = Classifier(tokenizer.get_vocab_size())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    accuracy = 0.0
    for epoch in range(3):
        model.train()
        for batch in train:
            loss, _ = model(**batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        right = samples_seen = 0
        for batch in evaluation:
            with torch.no_grad():
                _, logits = model(**batch)
            right += (logits.argmax(-1) == batch["labels"]).sum().item()
            samples_seen += len(logits)
        accuracy = right / samples_seen
        print(f"epoch {epoch}: accuracy {accuracy:.2f} of {samples_seen}")
        assert samples_seen == 80
    assert accuracy > 0.8, accuracy
    print("OK")


if __name__ == "__main__":
    main()
