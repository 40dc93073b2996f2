"""Torch's private names: the only package that uses them.

Each name stands here once, with what it is for. A torch that lacks one can still be imported together with us: `names`
notes every missing name that the engine needs, and loaders then run on torch's own iterator.

    names     looks names up, and notes those that are missing
    loaders   torch's iterators, fetchers and samplers, and what its loaders keep to themselves
    workers   what torch does in a worker: worker info, seeds, exceptions, collate functions
    tensors   storages, rebuilding of unusual tensors, modes
    frames    names by which torch's code is recognised from outside; imports no torch

Whether the engine can run on this torch:

    self_check    asks, tries and remembers; the only file here that starts processes
    requirements  the names and signatures that the engine needs
    known         releases that need no trial
    trial         a small epoch on our engine and on torch's own
"""
