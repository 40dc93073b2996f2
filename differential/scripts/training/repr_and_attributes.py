"""Attributes of loaders that programs read: batch_size, dataset, sampler types, lengths."""

# methods: fork
import copy
from torch.utils.data import DataLoader

loader = DataLoader(range(10), batch_size=3, shuffle=True, num_workers=2, drop_last=True, prefetch_factor=4, timeout=5)
print(
    loader.batch_size,
    loader.num_workers,
    loader.drop_last,
    loader.prefetch_factor,
    loader.timeout,
    loader.pin_memory,
    loader.persistent_workers,
    loader.in_order,
)
print(
    type(loader.sampler).__name__,
    type(loader.batch_sampler).__name__,
    loader.dataset,
    loader.collate_fn.__name__,
    loader.worker_init_fn,
    loader.generator,
)
print(
    len(loader), isinstance(loader, DataLoader), type(iter(loader)).__mro__[-2].__name__, loader.multiprocessing_context
)
other = copy.copy(loader)
print(len(other), other.batch_sampler is loader.batch_sampler, sum(len(batch) for batch in other))
it = iter(loader)
print(len(it), hasattr(it, "__next__"), next(it).shape)
