"""transformers' Trainer: a tiny BERT that learns masked words; the collator masks them in the workers."""

import random
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

from datasets import Dataset

WORDS = ["the", "a", "cat", "dog", "bird", "sees", "hears", "likes", "one", "big", "small", "red", "green"]
SPECIAL = ["[PAD]", "[UNK]", "[MASK]", "[CLS]", "[SEP]"]


class PrintingTrainer(Trainer):
    """A Trainer that prints every loss in full; its log rounds them."""

    def compute_loss(self, model, inputs, *args, **options):
        loss = super().compute_loss(model, inputs, *args, **options)
        value = loss[0] if isinstance(loss, tuple) else loss
        print("loss train" if model.training else "loss valid", value.item().hex(), flush=True)
        return loss


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(SPECIAL + WORDS)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(zip(["pad_token", "unk_token", "mask_token", "cls_token", "sep_token"], SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=words, **names)


def sentences(count: int, *, seed: int, words: PreTrainedTokenizerFast) -> Dataset:
    draw = random.Random(seed)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 9))) for _ in range(count)]
    return Dataset.from_dict({"text": texts}).map(lambda row: words(row["text"]), remove_columns="text")


def main() -> None:
    set_seed(7)
    words = tokenizer()
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = PrintingTrainer(
            model=BertForMaskedLM(config),
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=2,
                per_device_train_batch_size=8,
                per_device_eval_batch_size=8,
                dataloader_num_workers=2,
                dataloader_persistent_workers=True,
                eval_strategy="epoch",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                seed=7,
            ),
            train_dataset=sentences(64, seed=1, words=words),
            eval_dataset=sentences(32, seed=2, words=words),
            data_collator=DataCollatorForLanguageModeling(words, mlm_probability=0.3),
        )
        trainer.train()


if __name__ == "__main__":
    main()
