"""Arguments that do not go together."""

# methods: fork
import warnings
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


warnings.simplefilter("ignore")
WRONG = [
    dict(batch_size=0),
    dict(num_workers=-1),
    dict(shuffle=True, sampler=SequentialSampler(range(3))),
    dict(batch_size=2, batch_sampler=[[1]]),
    dict(batch_size=None, drop_last=True),
    dict(timeout=-1),
    dict(prefetch_factor=2),
    dict(persistent_workers=True),
    dict(num_workers=1, prefetch_factor=-1),
    dict(multiprocessing_context="no such", num_workers=1),
    dict(multiprocessing_context="fork"),
    dict(num_workers=1, multiprocessing_context=3),
    dict(no_such=1),
]
for options in WRONG:
    try:
        print(options, type(DataLoader(range(3), **options)).__name__)
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
for options in (dict(shuffle=True), dict(sampler=[1]), dict(batch_sampler=[[1]])):
    try:
        print(DataLoader(Stream(), **options))
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
loader = DataLoader(range(3))
for name in ("batch_size", "dataset", "sampler", "drop_last", "persistent_workers"):
    try:
        setattr(loader, name, 1)
    except ValueError as error:
        print(error)
