"""One of everything that a batch can be made of: a table of makers, each of a size.

Small things are copied out of a slot, large ones are laid over it, and a thing that has no size ignores it. What is made
is the same every time. Everything here can be imported by name, so that a clean stem, and torch's spawn, find it too.
"""

import array
import collections
import datetime as dt
import decimal
import fractions
import functools
import ipaddress
import math
import pathlib
import re
import tempfile
import types
import uuid
import warnings
import zoneinfo
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import Dataset, default_convert

from drop_in.user_types import (
    SENTINEL,
    ByCopyreg,
    ByForkingPickler,
    Color,
    Flags,
    Frozen,
    FrozenSlotted,
    HandSlotted,
    Labelled,
    OutOfBand,
    OwnArray,
    OwnDict,
    OwnInt,
    OwnList,
    OwnMapping,
    OwnStr,
    Pair,
    Plain,
    Point,
    Quiet,
    Reduced,
    Slotted,
    Stateful,
    Twofold,
    UserDict,
    a_function,
)

SMALL, LARGE = 6, 66_000
"""Elements: of one byte each, LARGE are more than what is copied out of a slot (64 KiB)."""

Maker = Callable[[int], Any]


# --- raw material ------------------------------------------------------------------------------------------------------


def raw_bytes(length: int) -> bytes:
    """Every byte value, in no simple order; as floats there are many NaN among them."""
    return ((np.arange(length, dtype=np.int64) * 167 + 13) % 251).astype(np.uint8).tobytes()


def tensor_of(dtype: torch.dtype, n: int) -> torch.Tensor:
    raw = torch.frombuffer(bytearray(raw_bytes(n * dtype.itemsize)), dtype=torch.uint8)
    return (raw & 1).view(torch.bool) if dtype is torch.bool else raw.view(dtype)


def array_of(dtype: Any, n: int) -> np.ndarray:
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.arange(n) % 3 == 0
    return np.frombuffer(bytearray(raw_bytes(n * dtype.itemsize)), dtype)


def floats(*shape: int) -> torch.Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


def is_carried(dtype: torch.dtype) -> bool:
    try:
        return not tensor_of(dtype, 2).is_quantized
    except RuntimeError:  # a dtype in name only
        return False


DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
PLAIN_DTYPES = [
    dtype for dtype in DTYPES if "qint" not in str(dtype) and "quint" not in str(dtype) and is_carried(dtype)
]
ARRAY_DTYPES = (
    *("?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "g", "F", "D", "G", "S5", "V7"),
    *(">i2", ">i4", ">f4", ">f8", ">c16", ">M8[ms]", "M8[s]", "M8[ns]", "m8[us]"),
)


def texts(n: int) -> list[str]:
    return ["", "ä", "\U0001f600", "\ud800", "nul\0inside", *(f"text {number}" for number in range(n % 100))]


def quietly(make: Maker) -> Maker:
    """torch and numpy warn of some of their own kinds; in these tests every warning is an error."""

    @functools.wraps(make)
    def made(n: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make(n)

    return made


# --- plain values and containers ---------------------------------------------------------------------------------------

PLAIN: dict[str, Maker] = {
    "none": lambda n: None,
    "bools and ints": lambda n: [True, False, 0, 1, -1, 255, 256, 1 << 31, 1 << 63, -(1 << 64), 10**300],
    "floats": lambda n: [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan, -math.nan, 5e-324, 1.7e308],
    "complex": lambda n: [1 + 2j, complex(-0.0, math.nan), complex(math.inf, -0.0)],
    "texts": texts,
    "a long text": lambda n: "wörd " * n,
    "bytes": lambda n: [b"", b"\0", raw_bytes(300), raw_bytes(n)],
    "bytearray": lambda n: [bytearray(), bytearray(raw_bytes(n))],
    "array.array": lambda n: [array.array("d", [1.5, -0.0]), array.array("B", raw_bytes(n))],
    "enums": lambda n: [Color.RED, Color.GREEN, Flags.A | Flags.B, Flags(0)],
    "paths": lambda n: [pathlib.Path("a/b.png"), pathlib.PurePosixPath("/x"), pathlib.PureWindowsPath("c:/y")],
    "dates": lambda n: [
        dt.datetime(2024, 2, 29, 23, 59, 59, 999999, fold=1),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=30), "X")),
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
        dt.date.min,
        dt.time(1, 2, 3),
        dt.timedelta(-1, 1, 1),
    ],
    "exact numbers": lambda n: [fractions.Fraction(1, 3), decimal.Decimal("1.10"), decimal.Decimal("-0")],
    "small values of the library": lambda n: [
        uuid.UUID(int=5),
        ipaddress.ip_address("::1"),
        re.compile("a+", re.DOTALL),
        range(3, 9, 2),
        slice(1, None, -1),
        ...,
        NotImplemented,
        types.SimpleNamespace(a=1, b=floats(2)),
    ],
    "classes and functions": lambda n: [
        *(int, Point, Color, math.sqrt, a_function, len, torch.relu, np.mean),
        functools.partial(a_function, 4),
    ],
    "bound methods": lambda n: [[1, 2].index, Reduced(1).__reduce__],
    "exceptions": lambda n: [ValueError("x", 1), KeyError("k")],
    "values of torch": lambda n: [
        torch.Size([2, 3]),
        torch.float8_e4m3fn,
        torch.device("cpu"),
        torch.device("cuda:1"),
        torch.strided,
        torch.channels_last,
        torch.per_tensor_affine,
        torch.finfo(torch.float16).eps,
    ],
    "generators of numbers": lambda n: [
        torch.Generator().manual_seed(5),
        np.random.default_rng(5),
        np.random.RandomState(7),
    ],
    "numpy scalars": lambda n: [
        *(np.dtype(code).type(1) for code in "?bBhHiIqQefdgFDG"),
        np.float64("nan"),
        np.float32(-0.0),
        np.str_("text"),
        np.bytes_(b"raw"),
        np.datetime64("2024-02-29"),
        np.timedelta64(3, "h"),
        np.void(b"abc"),
        np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])[0],
    ],
    "numpy dtypes": lambda n: [np.dtype("f4"), np.dtype([("a", ">i4"), ("b", "f8", 3)]), np.float32],
}  # fmt: skip


def shared_parts() -> Any:
    inner = [1]
    both = (inner, {"k": inner})
    return {"a": both, "b": inner, "c": both, "d": Plain(inner, both)}


def self_referential() -> Any:
    around: list[Any] = [1]
    around.append(around)
    mapping: dict[str, Any] = {"list": around}
    mapping["self"] = mapping
    owner = Plain(mapping)
    owner.y = owner
    knot: Any = ([],)
    knot[0].append(knot)
    return [around, mapping, owner, knot]


def nested(depth: int) -> Any:
    thing: Any = "bottom"
    for level in range(depth):
        thing = {"down": thing} if level % 3 == 0 else [thing] if level % 3 == 1 else (thing,)
    return thing


def with_attribute(thing: Any, **named: Any) -> Any:
    for name, value in named.items():
        setattr(thing, name, value)
    return thing


def hand_slotted(n: int) -> HandSlotted:
    return with_attribute(HandSlotted(), x=floats(n))


def linear(n: int) -> torch.nn.Module:
    layer = torch.nn.Linear(n, 1)
    with torch.no_grad():
        layer.weight.copy_(floats(1, n))
        layer.bias.fill_(2)
    return layer


def gray(n: int) -> Image.Image:
    return Image.frombytes("L", (n, 1), raw_bytes(n))


CONTAINERS: dict[str, Maker] = {
    "empty": lambda n: [[], (), {}, set(), frozenset(), collections.deque()],
    "dict": lambda n: {"b": 1, "a": floats(n), 3: "int", None: "none", (1, "t"): "tuple", 1.5: "float", b"b": "bytes"},
    "OrderedDict": lambda n: collections.OrderedDict([("z", floats(n)), ("a", 1), ("m", None)]),
    "defaultdict": lambda n: collections.defaultdict(list, {"x": [floats(n)]}),
    "Counter": lambda n: collections.Counter("abracadabra"),
    "ChainMap": lambda n: collections.ChainMap({"a": floats(n)}, {"a": 2, "b": 3}),
    "UserDict": lambda n: UserDict({"a": floats(n)}),
    "subclass of dict": lambda n: with_attribute(OwnDict(a=floats(n)), note="kept"),
    "subclass of list": lambda n: with_attribute(OwnList([1, floats(n)]), note="kept"),
    "mapping of a user": lambda n: OwnMapping({"a": floats(n), "b": "text"}),
    "list": lambda n: [floats(n), [1, [2, [3]]], (4, (5,))],
    "tuple": lambda n: (floats(n), (), ((1,), [2])),
    "set": lambda n: {1, "two", 3.5, (4, 5), None},
    "frozenset": lambda n: frozenset([1, "two", frozenset([3])]),
    "deque": lambda n: collections.deque([floats(n), 2, 3], maxlen=5),
    "namedtuple of typing": lambda n: Point(floats(n)),
    "namedtuple of collections": lambda n: Pair(floats(n), Point(1, 2)),
    "dataclass": lambda n: Plain(floats(n), [1]),
    "dataclass, frozen": lambda n: Frozen(floats(n), "y"),
    "dataclass, slots": lambda n: Slotted(floats(n), {"k": 1}),
    "dataclass, frozen and slots": lambda n: FrozenSlotted(floats(n)),
    "slots": hand_slotted,
    "subclasses of int and str": lambda n: [OwnInt(5), OwnStr("text")],
    "__reduce__": lambda n: Reduced(floats(n), "text"),
    "__getstate__": lambda n: Stateful(floats(n)),
    "one object for ever": lambda n: [SENTINEL, {"again": SENTINEL}],
    "copyreg": lambda n: ByCopyreg(floats(n)),
    "ForkingPickler": lambda n: ByForkingPickler(floats(n)),
    "PickleBuffer": lambda n: OutOfBand(raw_bytes(n)),
    "parts that occur twice": lambda n: shared_parts(),
    "parts of themselves": lambda n: self_referential(),
    "500 levels": lambda n: nested(500),
    "PIL image": lambda n: Image.frombytes("RGB", (n // 6, 2), raw_bytes(n // 6 * 6)),
    "PIL image with a palette": lambda n: with_attribute(gray(n).convert("P"), info={"dpi": 72}),
    "PackedSequence": lambda n: pack_sequence([floats(n), floats(2)]),
    "module": linear,
}  # fmt: skip


# --- numpy -------------------------------------------------------------------------------------------------------------


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def memory_mapped(n: int) -> np.memmap:
    with tempfile.TemporaryFile() as file:
        file.write(raw_bytes(n))
        file.flush()
        return np.memmap(file, mode="r+", shape=(n,))


def masked(n: int) -> Any:
    values = np.ma.masked_array(np.arange(n * 1.0), mask=np.arange(n) % 3 == 0, fill_value=-7)
    values.harden_mask()
    return values


def structured(n: int, *, align: bool = False) -> np.ndarray:
    dtype = np.dtype([("id", ">i4"), ("pos", "f4", (3,)), ("name", "S5"), ("in", [("x", "?")])], align=align)
    made = np.zeros(n, dtype)
    made["id"] = np.arange(n)
    made["pos"] = np.arange(3 * n).reshape(n, 3) / 7
    made["name"] = b"abc"
    return made


def objects(n: int) -> np.ndarray:
    made = np.empty(3, dtype=object)
    inner = floats(n)
    made[:] = [inner, {"x": inner}, None]
    return made


ARRAYS: dict[str, Maker] = {
    **{f"dtype {code}": functools.partial(array_of, code) for code in ARRAY_DTYPES},
    "strings": lambda n: np.array([f"t{number}" for number in range(n)]),
    "strings, big-endian": lambda n: np.array(["ab", "ä"], dtype=">U3"),
    "strings of any length": lambda n: np.array(["a" * (n // 4), "", "ä"] * 4, dtype=np.dtypes.StringDType()),
    "structured": structured,
    "structured, aligned": functools.partial(structured, align=True),
    "records": lambda n: structured(n).view(np.recarray),
    "structured with objects": lambda n: np.array([(1, [2])], dtype=[("a", "i4"), ("o", "O")]),
    "objects": lambda n: np.array([None, {"x": 1}, "text", floats(n)], dtype=object),
    "0-d": lambda n: np.array(3.5),
    "0-d of an object": lambda n: np.array({"a": 1}, dtype=object),
    "empty": lambda n: [np.empty(0), np.empty((0, 3), "i2"), np.empty((3, 0), order="F")],
    "three dimensions": lambda n: np.arange(n * 6, dtype="i2").reshape(2, 3, n),
    "Fortran order": lambda n: np.asfortranarray(np.arange(n * 2).reshape(2, n)),
    "Fortran order of objects": lambda n: np.asfortranarray(np.array([[1, "a", None], [2.5, "b", ()]], dtype=object)),
    "transposed": lambda n: np.arange(n * 6).reshape(2, 3, n).transpose(1, 0, 2),
    "every second": lambda n: np.arange(2 * n)[::2],
    "backwards": lambda n: np.arange(n)[::-1],
    "broadcast": lambda n: np.broadcast_to(np.arange(n), (3, n)),
    "not aligned": lambda n: np.frombuffer(bytearray(raw_bytes(4 * n + 1)), "u1")[1:].view("f4"),
    "a part": lambda n: np.arange(3 * n)[n : 2 * n],
    "read-only": lambda n: read_only(np.arange(n)),
    "read-only, strided": lambda n: read_only(np.arange(2 * n)[::2]),
    "over bytes": lambda n: np.frombuffer(raw_bytes(n), "u1"),
    "masked": masked,
    "masked, without a mask": lambda n: np.ma.masked_array(np.arange(n)),
    "masked constant": lambda n: np.ma.masked,
    "matrix": quietly(lambda n: np.matrix(np.arange(n * 2).reshape(2, n))),
    "character array": quietly(lambda n: np.char.array(["a", "bc"])),
    "memory map": memory_mapped,
    "subclass": lambda n: with_attribute(np.arange(n).view(OwnArray), note="forgotten by numpy"),
    "the same twice": lambda n: [one := np.arange(n), one],
    "two over one memory": lambda n: [one := np.arange(2 * n), one[:n], one[n:]],
    "two over one memory, of two types": lambda n: [one := np.arange(n), one.view("u1"), one.view(OwnArray)],
    "equal but not the same": lambda n: [np.arange(n), np.arange(n)],
    "tensors inside": objects,
}  # fmt: skip


# --- tensors -----------------------------------------------------------------------------------------------------------


def complex_of(n: int) -> torch.Tensor:
    return torch.complex(floats(n), -floats(n))


def coo(n: int, *, coalesced: bool) -> torch.Tensor:
    indices = torch.stack([torch.arange(n) % 5, torch.arange(n) % 7])
    made = torch.sparse_coo_tensor(indices, floats(n), (5, 7))
    return made.coalesce() if coalesced else made


def square(n: int) -> torch.Tensor:
    """Every third element is zero; an even number of rows and columns."""
    side = 2 * (math.isqrt(n) // 2 + 1)
    made = floats(side, side)
    made[made % 3 == 0] = 0
    return made


def quantized(n: int, dtype: torch.dtype = torch.quint8) -> torch.Tensor:
    return torch.quantize_per_tensor(floats(n) % 9, 0.5, 2, dtype)


def quantized_per_channel(n: int) -> torch.Tensor:
    return torch.quantize_per_channel(floats(2, n) % 9, torch.tensor([0.1, 0.2]), torch.tensor([1, 2]), 0, torch.qint8)


def labelled(n: int, *, requires_grad: bool = False) -> torch.Tensor:
    made = floats(n).requires_grad_(requires_grad).as_subclass(Labelled) if not requires_grad else None
    made = made if made is not None else Labelled(floats(n)).requires_grad_()
    return with_attribute(made, label="five", extra=[1, floats(2)])


def with_gradient(n: int) -> torch.Tensor:
    made = floats(n).requires_grad_()
    made.grad = floats(n)
    return made


def inference(n: int) -> torch.Tensor:
    with torch.inference_mode():
        return floats(n)


TENSORS: dict[str, Maker] = {
    **{f"dtype {str(dtype).removeprefix('torch.')}": functools.partial(tensor_of, dtype) for dtype in PLAIN_DTYPES},
    "0-d": lambda n: [torch.tensor(3), torch.tensor(-0.0), torch.tensor(True)],
    "0-d of every dtype": lambda n: [tensor_of(dtype, 1)[0] for dtype in PLAIN_DTYPES],
    "empty": lambda n: [torch.empty(0), torch.empty(0, 5, dtype=torch.int8), torch.empty(3, 0, 2), torch.empty(0, 5).t()],
    "three dimensions": lambda n: floats(2, n, 3),
    "transposed": lambda n: floats(n, 3).t(),
    "permuted": lambda n: floats(2, n, 3).permute(2, 0, 1),
    "every second": lambda n: floats(2 * n)[::2],
    "a part": lambda n: floats(3 * n)[n : 2 * n],
    "a column": lambda n: floats(n, 4)[:, 2],
    "a window": lambda n: floats(n, 10)[1:-1, 3:6],
    "expanded": lambda n: floats(n, 1).expand(n, 3),
    "expanded from one": lambda n: torch.tensor(2.5).expand(3, n),
    "overlapping": lambda n: floats(n).unfold(0, 3, 1),
    "a size of one with any stride": lambda n: floats(2 * n).as_strided((1, n, 1), (3, 1, 7)),
    "channels last": lambda n: floats(2, 3, 2, n).to(memory_format=torch.channels_last),
    "channels last, one channel": lambda n: floats(2, 1, 2, n).to(memory_format=torch.channels_last),
    "channels last, three dimensions": lambda n: floats(1, 2, 2, 2, n).to(memory_format=torch.channels_last_3d),
    "picture of numpy": lambda n: torch.from_numpy(np.arange(n * 6, dtype="f4").reshape(n, 2, 3)).permute(2, 0, 1),
    "conjugated": lambda n: complex_of(n).conj(),
    "negated": lambda n: complex_of(n).conj().imag,
    "real part": lambda n: complex_of(n).real,
    "other dtype over it": lambda n: floats(n).view(torch.int16),
    "not aligned": lambda n: torch.frombuffer(bytearray(raw_bytes(4 * n + 1)), dtype=torch.uint8)[1:],
    "large storage": lambda n: floats(100 * SMALL)[5 : 5 + SMALL],
    "in shared memory": lambda n: floats(n).share_memory_(),
    "of numpy": lambda n: torch.from_numpy(np.arange(n)),
    "inference": inference,
    "requires grad": lambda n: floats(n).requires_grad_(),
    "requires grad, strided": lambda n: floats(n, 2).t().detach().requires_grad_(),
    "requires grad, with a gradient": with_gradient,
    "requires grad, of eight bits": lambda n: tensor_of(torch.float8_e4m3fn, n).requires_grad_(),
    "parameter of sixteen bits": lambda n: torch.nn.Parameter(tensor_of(torch.uint16, n), requires_grad=False),
    "parameter": lambda n: torch.nn.Parameter(floats(n)),
    "parameter, frozen": lambda n: torch.nn.Parameter(floats(n), requires_grad=False),
    "parameter of integers": lambda n: torch.nn.Parameter(torch.arange(n), requires_grad=False),
    "buffer": lambda n: torch.nn.Buffer(floats(n)),
    "subclass": labelled,
    "subclass, requires grad": functools.partial(labelled, requires_grad=True),
    "subclass, strided": lambda n: floats(n, 2).t().as_subclass(Labelled),
    "subclass without functions": lambda n: floats(n).as_subclass(Quiet),
    "wrapper": lambda n: Twofold(floats(n), -floats(n)),
    "with an attribute": lambda n: with_attribute(floats(n), label="dropped by torch"),
    "meta": lambda n: torch.empty(n, 2, device="meta").t(),
    "sparse coo": functools.partial(coo, coalesced=True),
    "sparse coo, not coalesced": functools.partial(coo, coalesced=False),
    "sparse coo, hybrid": lambda n: torch.sparse_coo_tensor(torch.tensor([[0, 2]]), floats(2, n), (4, n)),
    "sparse coo, empty": lambda n: torch.sparse_coo_tensor(size=(3, 4)),
    "sparse csr": quietly(lambda n: square(n).to_sparse_csr()),
    "sparse csc": quietly(lambda n: square(n).to_sparse_csc()),
    "sparse bsr": quietly(lambda n: square(n).to_sparse_bsr((2, 2))),
    "sparse bsc": quietly(lambda n: square(n).to_sparse_bsc((2, 2))),
    "sparse csr of a batch": quietly(lambda n: torch.stack([square(n), square(n)]).to_sparse_csr()),
    "nested": quietly(lambda n: torch.nested.nested_tensor([floats(2, 3), floats(n, 3)])),
    "quantized": quietly(quantized),
    "quantized, 32 bits": quietly(functools.partial(quantized, dtype=torch.qint32)),
    "quantized per channel": quietly(quantized_per_channel),
    "untyped storage": lambda n: floats(n).untyped_storage(),
    "untyped storage, empty": lambda n: torch.UntypedStorage(0),
    "typed storage": quietly(lambda n: torch.TypedStorage(wrap_storage=floats(n).untyped_storage(), dtype=torch.float32)),
    "typed storage of old": quietly(lambda n: torch.FloatStorage(n).fill_(2.5)),
}  # fmt: skip


def same_bytes_two_tensors(n: int) -> list[Any]:
    """An array over the memory of a tensor: torch does not keep the two together."""
    tensor = floats(n)
    return [tensor, tensor.numpy(), tensor[1:].numpy()]


ALIASES: dict[str, Maker] = {
    "the same tensor twice": lambda n: [one := floats(n), {"again": one}],
    "equal tensors": lambda n: [floats(n), floats(n)],
    "whole and part": lambda n: [one := floats(n), one[2:]],
    "part and whole": lambda n: [(one := floats(n))[2:], one],
    "parts that overlap": lambda n: [(one := floats(4 * n))[: 3 * n], one[n:]],
    "parts apart": lambda n: [(one := floats(4 * n))[:n], one[3 * n :]],
    "chunks": lambda n: list(floats(4 * n).chunk(4)),
    "rows": lambda n: list(floats(3, n)),
    "even and odd": lambda n: [(one := floats(2 * n))[::2], one[1::2]],
    "two dtypes": lambda n: [one := floats(n), one.view(torch.int32), one.view(torch.uint8)],
    "transposed and not": lambda n: [one := floats(n, 2), one.t()],
    "expanded and not": lambda n: [one := floats(1, n), one.expand(3, n)],
    "real and imaginary": lambda n: [one := complex_of(n), one.real, one.imag],
    "tensor and storage": lambda n: [one := floats(n), one.untyped_storage()],
    "storage and tensor": lambda n: [(one := floats(n)).untyped_storage(), one[1:]],
    "storage twice": lambda n: [(one := floats(n)).untyped_storage(), one.untyped_storage()],
    "tensor and array": same_bytes_two_tensors,
    "tensor and parameter": lambda n: [one := floats(n), torch.nn.Parameter(one), one.detach().requires_grad_()],
    "parameter and tensor": lambda n: [torch.nn.Parameter(one := floats(n)), one, one[1:]],
    "tensor and subclass": lambda n: [one := floats(n), one.as_subclass(Labelled)],
    "subclass and tensor": lambda n: [(one := floats(n)).as_subclass(Labelled), one],
    "two sparse over one": lambda n: [one := floats(2), torch.sparse_coo_tensor(torch.tensor([[0, 2]]), one, (4,))],
    "detached": lambda n: [one := floats(n).requires_grad_(), one.detach()],
    "empty part": lambda n: [one := floats(n), one[:0]],
    "inside objects": lambda n: [one := floats(n), Plain(one, [one[:2]]), Point({"x": one}), objects_with(one)],
}  # fmt: skip


def objects_with(tensor: torch.Tensor) -> np.ndarray:
    made = np.empty(2, dtype=object)
    made[:] = [tensor, tensor[1:]]
    return made


def non_leaf(n: int) -> torch.Tensor:
    return floats(n).requires_grad_() * 2


BEYOND_TORCH: dict[str, Maker] = {
    "requires grad, not a leaf": non_leaf,
    "subclass of eight bits": lambda n: tensor_of(torch.float8_e5m2, n).as_subclass(Labelled),
    "requires grad, a view": lambda n: floats(n, 2).requires_grad_().t(),
    "a lambda": lambda n: {"f": lambda x: x + n, "x": floats(n)},
    "a closure over a tensor": lambda n: {"f": functools.partial(lambda t, x: t + x, floats(n))},
    "keys of a dict": lambda n: {"a": 1, "b": 2}.keys(),
    "module type": lambda n: [math, types],
}
"""What torch cannot send: its worker's thread drops it, and the loop waits for ever. Ours arrives as it was made."""

KINDS: dict[str, Maker] = {
    f"{group}: {name}": make
    for group, makers in {
        "value": PLAIN,
        "container": CONTAINERS,
        "array": ARRAYS,
        "tensor": TENSORS,
        "alias": ALIASES,
        "beyond torch": BEYOND_TORCH,
    }.items()
    for name, make in makers.items()
}


def jagged(n: int) -> torch.Tensor:
    """Not in the table: torch imports its compiler when the first one is made, which takes seconds in every process."""
    return torch.nested.nested_tensor([floats(2, 3), floats(n, 3)], layout=torch.jagged)


def jagged_with_lengths(n: int) -> torch.Tensor:
    return torch.nested.nested_tensor_from_jagged(floats(n, 2), torch.tensor([0, 2, n]), torch.tensor([1, n - 3]))


class Index(NamedTuple):
    """Asks for a kind, of a size, in a form."""

    name: str
    size: int
    form: str = "as it is"


class Beside(NamedTuple):
    asked_for: Any
    large: torch.Tensor


class Kinds(Dataset[Any]):
    """Sample `index` is what it asks for; with a large tensor beside it, the batch as a whole is not small."""

    def __getitem__(self, index: Index) -> Any:
        made = KINDS[index.name](index.size)
        if index.form == "converted":
            return default_convert(made)
        return Beside(made, torch.zeros(LARGE)) if index.form == "beside a large tensor" else made


def as_it_is(batch: Any) -> Any:
    return batch
