"""What torch keeps to itself about tensors and storages: shared memory, rebuilding of unusual tensors, modes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch

from antifreeze.torch_side.names import note_missing, optional, required

# --- storages

storage_key: Callable[[Any], int] = attrgetter("_cdata")
"""Which storage this is: the same for all Python objects that stand for one."""
untyped_of: Callable[[torch.TypedStorage], torch.UntypedStorage] = attrgetter("_untyped_storage")
"""The storage under its typed face."""
version_of: Callable[[torch.Tensor], int] = attrgetter("_version")
"""How often a tensor has been changed in place."""

# Moves a storage to shared memory, unless it is there; gives its descriptor, which stays the storage's, and its length.
share_by_descriptor: Callable[[torch.UntypedStorage], tuple[int, int]] = required("torch:UntypedStorage._share_fd_cpu_")
# The same for memory that is shared by the name of a file: (manager, name, length).
share_by_name: Callable[[torch.UntypedStorage], tuple[bytes, bytes, int]] = required(
    "torch:UntypedStorage._share_filename_cpu_"
)
# The storage over memory that another process has shared.
storage_of_descriptor: Callable[[int, int], torch.UntypedStorage] = required("torch:UntypedStorage._new_shared_fd_cpu")
storage_of_name: Callable[[bytes, bytes, int], torch.UntypedStorage] = required(
    "torch:UntypedStorage._new_shared_filename_cpu"
)
# Exchanges the memory of two storages in place; None in older versions, where memory outside /dev/shm cannot be shared.
swap_memory: Callable[[torch.UntypedStorage, torch.UntypedStorage], None] | None = optional(
    "torch:UntypedStorage._swap_data_ptr_", None
)


def typed_storage(storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.TypedStorage:
    """The typed face of a storage, as torch's own reduction of unusual tensors asks for it."""
    return torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


# --- rebuilding

# Rebuilds a tensor of a dtype that is too new for typed storages.
_rebuild_v3: Callable[..., torch.Tensor] = required("torch._utils:_rebuild_tensor_v3")
# Rebuilds a nested tensor so that it is no view.
_rebuild_nested: Callable[..., torch.Tensor] = required("torch:_nested_view_from_buffer_copy")


# Rebuilds a tensor of a dtype that typed storages know.
_rebuild_v2: Callable[..., torch.Tensor] = required("torch._utils:_rebuild_tensor_v2")
# Rebuilds a subclass of Tensor: (function that makes the plain tensor, class, arguments of the function, state).
_rebuild_subclass: Callable[..., torch.Tensor] = required("torch._tensor:_rebuild_from_type_v2")

Strided = tuple[torch.UntypedStorage, torch.dtype, int, tuple[int, ...], tuple[int, ...]]
"""Storage, dtype, start, shape and strides of a tensor."""


def strided_subclass(reduced: Any) -> Strided | None:
    """Where the tensor lies that `__reduce_ex__` of a subclass has reduced; None if it is not a plain strided one."""
    match reduced:
        case (rebuild, (make, _, (storage, start, shape, strides, False, _, *dtype), _)) if (
            rebuild is _rebuild_subclass
        ):
            if make is _rebuild_v2 and not dtype:
                return untyped_of(storage), storage.dtype, start, shape, strides
            if make is _rebuild_v3 and len(dtype) == 1:
                return storage, dtype[0], start, shape, strides
    return None


def rebuild_new_dtype(storage: torch.UntypedStorage, *rest: Any) -> torch.Tensor:
    """Rebuild a tensor of a new dtype: torch's reduction sends a bare storage, and its rebuilding wants a typed one."""
    return _rebuild_v3(typed_storage(storage, torch.uint8), *rest)


REBUILT_TYPED: dict[tuple[str, str], Callable[..., torch.Tensor]] = {
    ("torch._utils", "_rebuild_tensor_v3"): rebuild_new_dtype,
}
"""By module and name in a pickle: functions of torch's that do not take bare storages, and what takes their place."""
REBUILT_OTHERWISE: dict[tuple[str, str], Callable[..., torch.Tensor]] = {
    **REBUILT_TYPED,
    ("torch._utils", "_rebuild_nested_tensor"): _rebuild_nested,  # not a view, as torch's workers' are not
}
"""The same, and those whose results would not be like those of torch's workers."""

# The sparse tensors that torch has rebuilt and keeps until they have been looked at. Up to torch 2.14 a list that stays
# the same one, since then one per thread.
_one_list: list[torch.Tensor] = optional("torch._utils:_sparse_tensors_to_validate", [])
_unvalidated: Callable[[], list[torch.Tensor]] = optional(
    "torch._utils:_get_sparse_tensors_to_validate", lambda: _one_list
)
_validate: Callable[[], None] = optional("torch._utils:_validate_loaded_sparse_tensors", lambda: None)


def validate_sparse_tensors() -> None:
    """Have torch look at the sparse tensors that it has rebuilt: it keeps them, and so their memory, until then."""
    if _unvalidated():
        _validate()


# --- kinds of tensors, and modes

dispatch_keys: Callable[[torch.Tensor], Any] = required("torch._C:_dispatch_keys")
"""A set that says what kind of tensor this is; `raw_repr()` makes it a number."""


def _keys_of_plain_tensors() -> frozenset[int]:
    found = set()
    for is_inference in (False, True):
        with contextlib.suppress(AttributeError), torch.inference_mode(is_inference):
            found.add(int(dispatch_keys(torch.empty(0, device="cpu")).raw_repr()))
    if not found:
        note_missing("torch.DispatchKeySet.raw_repr")
    return frozenset(found)


PLAIN_KEYS = _keys_of_plain_tensors()
"""What a dense tensor on the CPU has, and one that was made in inference mode; every other kind (sparse, nested,
quantized, conjugated …) has another set."""

# A context in which subclasses of Tensor are treated as plain tensors. Where there is none, their own code runs.
as_plain_tensors: Callable[[], contextlib.AbstractContextManager[Any]] = optional(
    "torch._C:DisableTorchFunctionSubclass", contextlib.nullcontext
)
# Whether some of these tensors are of a class with functions of its own.
has_torch_function: Callable[[Any], bool] = required("torch._C:_has_torch_function")
# How many modes see the calls of torch's functions, and which is at this place; how many see those of its operators.
count_function_modes: Callable[[], int] = required("torch._C:_len_torch_function_stack")
function_mode_at: Callable[[int], Any] = required("torch._C:_get_function_stack_at")
count_dispatch_modes: Callable[[], int] = required("torch._C:_len_torch_dispatch_stack")
# The mode of `torch.set_default_device`. Where it is another class, it counts as a mode of the user's.
DefaultDevice: type = optional("torch.utils._device:DeviceContext", type(None))
