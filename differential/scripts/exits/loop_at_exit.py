"""A loader is used by a function that atexit runs."""
# cold: needs an interpreter of its own

# methods: fork
import atexit
from torch.utils.data import DataLoader


def last_epoch():
    try:
        print([batch.tolist() for batch in DataLoader(range(6), batch_size=2, num_workers=1)])
    except BaseException as error:
        print(type(error).__name__)


atexit.register(last_epoch)
print("end of the script")
