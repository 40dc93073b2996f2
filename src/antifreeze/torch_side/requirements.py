"""The names and signatures of torch that the engine needs: whether this torch has them, without running anything."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.data

from antifreeze.torch_side import loaders, names, workers

LOADER_ARGUMENTS = frozenset(inspect.signature(torch.utils.data.DataLoader.__init__).parameters)
"""The names of the arguments that torch's loader takes."""
# The latest that we pass on; torch has it since 2.6.
_LATEST_ARGUMENT = "in_order"


@functools.cache
def why_unfit() -> str | None:
    """What the engine needs and does not find in this torch; None: all is there."""
    lacking = [*names.missing, *_lacking()]
    return f"torch {torch.__version__} does not have {', '.join(lacking)}" if lacking else None


def _lacking() -> Iterator[str]:
    if _LATEST_ARGUMENT not in LOADER_ARGUMENTS:
        yield f"DataLoader({_LATEST_ARGUMENT}=)"
    if names.missing:
        return
    for function, arguments, named in _calls():
        try:
            inspect.signature(function).bind(*arguments, **named)
        except TypeError:
            yield f"{function.__qualname__}({', '.join([*map(str, arguments), *(f'{name}=' for name in named)])})"
        except ValueError:  # of C code, which does not say what it takes: the trial finds out
            continue


def _calls() -> Iterator[tuple[Callable[..., Any], tuple[str, ...], dict[str, str]]]:
    """How the engine calls torch: the function, and what stands for the arguments."""
    base, stock = loaders.BaseIterator, loaders.WorkersIterator
    yield base.__init__, ("self", "loader"), {}
    yield stock.__init__, ("self", "loader"), {}
    yield loaders.reset_base, ("self", "loader", "first_iter"), {}
    yield workers.generate_state, ("base_seed", "worker"), {}
    yield workers.ExceptionWrapper, ("exc_info",), {"where": ""}
    yield workers.new_worker_info, (), dict.fromkeys(("id", "num_workers", "seed", "dataset"), "")
    if loaders.share_out_pipe is not None:
        yield loaders.share_out_pipe, ("worker_init_fn", "world_size", "rank", "worker"), {}
