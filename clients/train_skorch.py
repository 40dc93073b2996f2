"""skorch: fit with a validation set; then the net is pickled, as joblib would, and the copy predicts."""

import pickle

import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from skorch.helper import predefined_split

from pictures import Pictures, small_network


class PrintLosses(Callback):
    def on_batch_end(self, net, batch=None, training=False, loss=None, **options) -> None:
        print("loss train" if training else "loss valid", loss.item().hex(), flush=True)


def main() -> None:
    torch.manual_seed(7)
    valid = Pictures(32, seed=2, augment=True)
    net = NeuralNetClassifier(
        small_network,
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=0.01,
        max_epochs=2,
        batch_size=8,
        iterator_train__shuffle=True,
        iterator_train__num_workers=2,
        iterator_valid__num_workers=2,
        iterator_valid__persistent_workers=True,
        train_split=predefined_split(valid),
        callbacks=[PrintLosses()],
        callbacks__valid_acc=None,
        verbose=0,
    )
    net.fit(Pictures(64, seed=1, augment=True), y=None)
    copy = pickle.loads(pickle.dumps(net))
    print("loss predict", copy.predict_proba(valid)[:, 0].mean().item().hex(), flush=True)


if __name__ == "__main__":
    main()
