"""Torch's files, functions and classes, for those who look at a process from outside. Imports no torch.

Where a torch names them otherwise, the doctor says less: it does not recognise what a process is at.
"""

from __future__ import annotations

WORKER_FILE = "torch/utils/data/_utils/worker.py"
"""The file of the loop that runs in torch's workers."""
WORKER_LOOP = "_worker_loop"
"""The function in it that never returns before the worker ends."""
FETCH_FILE = "torch/utils/data/_utils/fetch.py"
"""The file that asks the dataset for samples."""
NEXT_INDEX = "_next_index"
"""The method of an iterator that asks the sampler."""
STARTING = ("__init__", "__iter__", "_get_iterator")
"""Methods of a loader and its iterator that start workers."""
SHUT_DOWN = "_shutdown_workers"
"""The method of an iterator that ends its workers."""
CLOSING = (SHUT_DOWN, "__del__", "_clean_up_worker", "_clean_up_persistent_workers_atexit")
"""All that do so."""
WORKERS_ITERATOR = "_MultiProcessingDataLoaderIter"
LOCAL_ITERATOR = "_SingleProcessDataLoaderIter"
"""In `torch.utils.data.dataloader`: the iterators of loaders with workers and of those without."""
BASE_ITERATOR = "torch.utils.data.dataloader:_BaseDataLoaderIter"
"""The class of all iterators of loaders."""
