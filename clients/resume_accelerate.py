"""accelerate, stopped in mid-epoch and resumed in another process: `save_state` keeps whatever is registered for it.

resume_accelerate.py                     in one go
resume_accelerate.py --stop-after 11     as far as a checkpoint in mid-epoch
resume_accelerate.py --resume            from there on
"""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn.functional import cross_entropy

from antifreeze import StatefulDataLoader
from pictures import Pictures, small_network

CHECKPOINT = "accelerate"


class Progress:
    """Where the training is; accelerate saves anything with these two methods."""

    def __init__(self) -> None:
        self.epoch = self.step = 0

    def state_dict(self):
        return vars(self).copy()

    def load_state_dict(self, state) -> None:
        vars(self).update(state)


def main() -> None:
    words = sys.argv[1:]
    stop_after = int(words[1]) if "--stop-after" in words else -1
    accelerator = Accelerator(cpu=True)
    set_seed(7)
    network = small_network()
    network, optimizer = accelerator.prepare(network, torch.optim.Adam(network.parameters(), lr=0.01))
    loader = StatefulDataLoader(Pictures(64, seed=1, augment=True), batch_size=8, shuffle=True, num_workers=2)
    progress = Progress()
    accelerator.register_for_checkpointing(loader, progress)
    if "--resume" in words:
        accelerator.load_state(CHECKPOINT)
    while progress.epoch < 3:
        for images, labels in loader:
            loss = cross_entropy(network(images.to(accelerator.device)), labels.to(accelerator.device))
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            print(f"loss step {progress.step} {loss.item().hex()}", flush=True)
            progress.step += 1
            if progress.step == stop_after:
                accelerator.save_state(CHECKPOINT)
                return
        progress.epoch += 1


if __name__ == "__main__":
    main()
