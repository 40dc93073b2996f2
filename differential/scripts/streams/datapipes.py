"""torch's data pipes: shuffled and sharded by the loader."""

# methods: fork
import warnings
import torch

warnings.simplefilter("ignore")
from torch.utils.data import DataLoader
from torch.utils.data.datapipes.iter import IterableWrapper
from torch.utils.data.datapipes.map import SequenceWrapper

torch.manual_seed(0)
pipe = IterableWrapper(range(10)).shuffle().sharding_filter().map(torch.tensor)
for shuffle in (True, False):
    loader = DataLoader(pipe, batch_size=2, shuffle=shuffle, num_workers=2)
    print([batch.tolist() for batch in loader], [batch.tolist() for batch in loader])
print(list(DataLoader(SequenceWrapper(list(range(6))), batch_size=4, num_workers=2)))
