"""fastai: its DataLoader is its own class, and takes torch's iterator only."""

from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.torch_core import set_seed
from torch.nn.functional import cross_entropy

from pictures import Pictures, small_network


class PrintLosses(Callback):
    def after_loss(self) -> None:
        print("loss train" if self.training else "loss valid", self.learn.loss.item().hex(), flush=True)


def main() -> None:
    set_seed(7, reproducible=True)
    loaders = DataLoaders.from_dsets(
        Pictures(64, seed=1, augment=True), Pictures(32, seed=2, augment=True), bs=8, num_workers=2, device="cpu"
    )
    learner = Learner(loaders, small_network(), loss_func=cross_entropy, cbs=PrintLosses())
    with learner.no_logging():
        learner.fit(2, lr=0.01)


if __name__ == "__main__":
    main()
