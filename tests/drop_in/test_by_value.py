"""What users define in scripts, notebooks and functions works in a fresh process, and comes back as the trainer's own.

One program defines a bit of everything that Python has. It exists in four forms: as a script without a main guard and
with one, as the cells of a notebook (a main module without a file), and with all definitions inside a function. One
worker of a clean stem checks each thing and sends it back.
"""

import json
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from drop_in.harness import SELFTEST
from user_scripts import Ended, Script

pytestmark = [
    pytest.mark.skipif(bool(SELFTEST), reason="torch's spawn refuses most of these"),
]

IMPORTS = """
import abc, collections, contextlib, copy, dataclasses, enum, functools, json, logging, operator, random, re, sys
import threading, types, typing, weakref
import numpy as np
import torch
from antifreeze import DataLoader
from torch.utils.data import Dataset
"""

DEFINITIONS = '''
shared = {"count": 0}

def bump():
    shared["count"] += 1

def peek():
    return shared["count"]

def factorial(n):
    return 1 if n == 0 else n * factorial(n - 1)

def is_even(n):
    return n == 0 or is_odd(n - 1)

def is_odd(n):
    return n != 0 and is_even(n - 1)

def plus_one(function):
    @functools.wraps(function)
    def wrapped(*arguments):
        return function(*arguments) + 1
    return wrapped

@plus_one
def decorated(x):
    return x

def annotated(x: int, *rest: str, key: "float" = 0.5) -> list[int]:
    """Has everything a function can have."""
    return [x, key]

annotated.attribute = 5

@functools.lru_cache(maxsize=7)
def remembered(x):
    return x * 2

@functools.singledispatch
def dispatched(x):
    return "other"

@dispatched.register
def _(x: int):
    return "int"

@contextlib.contextmanager
def seven():
    yield 7

def counting():
    yield from range(3)

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

    def lower(self):
        return self.name.lower()

class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()

class Level(enum.IntEnum):
    LOW = 1

class Word(str, enum.Enum):
    YES = "yes"

Item = typing.TypeVar("Item")
Metres = typing.NewType("Metres", float)

class Box(typing.Generic[Item]):
    def __init__(self, content: Item) -> None:
        self.content = content

class BoxOfInt(Box[int]):
    pass

@typing.runtime_checkable
class Sized(typing.Protocol):
    def size(self) -> int: ...

class Four:
    def size(self):
        return 4

class Abstract(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    @property
    @abc.abstractmethod
    def name(self): ...

class Square(Abstract):
    name = "square"

    def area(self):
        return 9

class Adopted:
    pass

Abstract.register(Adopted)

@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    y: list = dataclasses.field(default_factory=list)

@dataclasses.dataclass(order=True)
class Ordered:
    x: int
    _: dataclasses.KW_ONLY = None
    z: int = 3

Pair = collections.namedtuple("Pair", "left right")

class Typed(typing.NamedTuple):
    a: int
    b: str = "b"

    def both(self):
        return self.a, self.b

class Meta(type):
    def __call__(cls, *arguments):
        made = super().__call__(*arguments)
        made.by_meta = True
        return made

class Made(metaclass=Meta):
    pass

class Base:
    def hello(self):
        return "base"

class Derived(Base):
    def hello(self):
        return super().hello() + " and derived"

class Registered:
    known = {}

    def __init_subclass__(cls):
        Registered.known[cls.__name__] = cls

class Registrant(Registered):
    pass

class Slots:
    __slots__ = ("a", "__weakref__")

class MoreSlots(Slots):
    __slots__ = ("b",)

class Stateful:
    def __init__(self):
        self.value = 1
        self.handle = (x for x in "cannot cross")

    def __getstate__(self):
        return {"value": self.value + 1}

    def __setstate__(self, state):
        self.value = state["value"] * 10

class Reduced:
    def __init__(self, value):
        self.value = value
        self.handle = (x for x in "cannot cross")

    def __reduce__(self):
        return Reduced, (self.value + 1,)

class ReducedBy:
    def __init__(self, protocol):
        self.protocol = protocol

    def __reduce_ex__(self, protocol):
        return ReducedBy, (protocol,)

class WithNewArguments:
    def __new__(cls, *, a):
        made = super().__new__(cls)
        made.a = a
        return made

    def __getnewargs_ex__(self):
        return (), {"a": self.a}

class Singleton:
    def __reduce__(self):
        return "THE_ONE"

THE_ONE = Singleton()

def is_the_one(thing):
    return thing is THE_ONE

class Changed:
    total = 0

Changed.total = 42
Changed.added = lambda self: self.total + 1

class Noted(dict):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.note = "a note"

class Listed(list):
    pass

class Cached:
    side = 3

    @functools.cached_property
    def area(self):
        return self.side ** 2

class Accessors:
    _x = 1

    @property
    def x(self):
        return self._x

    @x.setter
    def x(self, value):
        self._x = value

    @classmethod
    def make(cls):
        return cls()

    @staticmethod
    def twice(a):
        return 2 * a

class Described:
    class Field:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner):
            return self.name

    field = Field()

class Callable:
    def __call__(self, x):
        return x + 1

class Problem(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code

def with_attributes(thing, **attributes):
    for name, value in attributes.items():
        setattr(thing, name, value)
    return thing

def looped():
    loop = []
    loop.append({"loop": loop})
    return loop

def advanced(generator, draw):
    """A generator that has been used, and what it gives next."""
    draw(generator)
    following = copy.deepcopy(generator) if not isinstance(generator, torch.Generator) else generator.clone_state()
    return generator, draw(following)

def everything():
    """name: (the thing, what must hold of it wherever it is)."""
    torch_generator, torch_next = advanced(torch.Generator(), lambda g: torch.rand(1, generator=g).item())
    numpy_generator, numpy_next = advanced(np.random.default_rng(1), lambda g: g.random())
    numpy_state, state_next = advanced(np.random.RandomState(1), lambda g: g.rand())
    python_random, random_next = advanced(random.Random(1), lambda g: g.random())
    offset = 5
    return {
        "lambda": (lambda x: x + offset, lambda o: o(1) == 6),
        "partial": (functools.partial(lambda a, b: a - b, 5), lambda o: o(2) == 3),
        "bound method": (Derived().hello, lambda o: o() == "base and derived"),
        "class method": (Accessors.make, lambda o: type(o()) is Accessors),
        "callable object": (Callable(), lambda o: o(1) == 2),
        "recursive function": (factorial, lambda o: o(5) == 120),
        "mutual recursion": (is_even, lambda o: o(10) and not o(7)),
        "decorated": (decorated, lambda o: o(1) == 2 and o.__wrapped__(1) == 1),
        "annotated": (annotated, lambda o: o(1) == [1, 0.5] and o.attribute == 5 and "everything" in o.__doc__
                      and typing.get_type_hints(o)["key"] is float),
        "function with a cache": (remembered, lambda o: o(2) == 4 and o.cache_parameters()["maxsize"] == 7),
        "single dispatch": (dispatched, lambda o: (o(1), o("")) == ("int", "other")),
        "context manager": (seven, lambda o: contextlib.ExitStack().enter_context(o()) == 7),
        "generator function": (counting, lambda o: list(o()) == [0, 1, 2]),
        "shared globals": ((bump, peek), lambda o: (o[0](), o[1]() == shared["count"] >= 1)[1]),
        "enum": (Colour.RED, lambda o: o is Colour.RED and o.lower() == "red" and Colour(2) is Colour["BLUE"]),
        "flag": (Access.READ | Access.WRITE, lambda o: o == Access.READ | Access.WRITE and Access.READ in o),
        "int enum": (Level.LOW, lambda o: o is Level.LOW and o + 1 == 2),
        "str enum": (Word.YES, lambda o: o is Word.YES and o == "yes"),
        "generic": (Box[int](3), lambda o: type(o) is Box and o.content == 3),
        "subclass of a generic": (BoxOfInt(4),
                                  lambda o: type(o) is BoxOfInt and typing.get_args(BoxOfInt.__orig_bases__[0]) == (int,)),
        "generic alias": (Box[int], lambda o: typing.get_origin(o) is Box),
        "type variable": (Item, lambda o: o is Item),
        "new type": (Metres, lambda o: o is Metres and o.__supertype__ is float),
        "protocol": (Four(), lambda o: isinstance(o, Sized) and not isinstance(3, Sized)),
        "abstract class": (Square(), lambda o: isinstance(o, Abstract) and (o.area(), o.name) == (9, "square")),
        "virtual subclass": (Adopted(), lambda o: isinstance(o, Abstract)),
        "frozen dataclass with slots": (Frozen(1, [2]), lambda o: o == Frozen(1, [2]) and not hasattr(o, "__dict__")),
        "dataclass": (Ordered(1, z=9), lambda o: dataclasses.replace(o, x=2) == Ordered(2, z=9) > o),
        "namedtuple": (Pair(1, 2), lambda o: type(o) is Pair and o._replace(left=3) == Pair(3, 2)),
        "typed namedtuple": (Typed(1), lambda o: type(o) is Typed and o.both() == (1, "b")),
        "metaclass": (Made(), lambda o: o.by_meta and type(Made) is Meta and Made().by_meta),
        "super": (Derived(), lambda o: o.hello() == "base and derived"),
        "registered subclass": (Registrant(), lambda o: Registered.known == {"Registrant": type(o)}),
        "slots": (with_attributes(MoreSlots(), a=1, b=2),
                  lambda o: (o.a, o.b) == (1, 2) and not hasattr(o, "__dict__") and weakref.ref(o)() is o),
        "__getstate__": (Stateful(), lambda o: o.value in (20, 210)),
        "__reduce__": (Reduced(1), lambda o: o.value >= 2),
        "__reduce_ex__": (ReducedBy(0), lambda o: o.protocol >= 4),
        "__getnewargs_ex__": (WithNewArguments(a=4), lambda o: o.a == 4),
        "singleton by name": (THE_ONE, lambda o: o is THE_ONE and is_the_one(o)),
        "changed class": (Changed(), lambda o: o.total == 42 and o.added() == 43),
        "subclass of dict": (Noted({"a": 1}), lambda o: type(o) is Noted and o["a"] == 1 and o.note == "a note"),
        "subclass of list": (with_attributes(Listed([1]), note=1),
                             lambda o: type(o) is Listed and o == [1] and o.note == 1),
        "cached property": (Cached(), lambda o: o.area == 9 and "area" in vars(o)),
        "properties": (with_attributes(Accessors(), x=5), lambda o: o.x == 5 and Accessors.twice(2) == 4),
        "descriptor": (Described(),
                       lambda o: o.field == "field" and type(vars(Described)["field"]) is Described.Field),
        "nested class": (Described.Field(), lambda o: type(o) is Described.Field),
        "exception class": (Problem, lambda o: o(1, "text").code == 1),
        "loop": (looped(), lambda o: o[0]["loop"] is o),
        "module": (types.SimpleNamespace(np=np, json=json), lambda o: o.np is np and o.json is json),
        "logger": (logging.getLogger("a.b"), lambda o: o is logging.getLogger("a.b")),
        "regex": (re.compile(r"a(.)", re.I), lambda o: o.match("AB")[1] == "B"),
        "mapping proxy": (types.MappingProxyType({"a": 1}), lambda o: o["a"] == 1),
        "default dict": (collections.defaultdict(lambda: offset), lambda o: o[object()] == 5),
        "weak reference": (weakref.ref(Colour), lambda o: o() is Colour),
        "weak dict": (weakref.WeakValueDictionary({"a": Colour}), lambda o: o["a"] is Colour),
        "union": (int | None, lambda o: o == int | None),
        "operator": (operator.itemgetter(1), lambda o: o("ab") == "b"),
        "lock": (threading.Lock(), lambda o: o.acquire(blocking=False)),
        "torch generator": (torch_generator, lambda o: torch.rand(1, generator=o).item() == torch_next),
        "numpy generator": (numpy_generator, lambda o: o.random() == numpy_next),
        "numpy random state": (numpy_state, lambda o: o.rand() == state_next),
        "random": (python_random, lambda o: o.random() == random_next),
    }
'''

RUN = """
# What changes by being looked at, cannot be sent back, or is not the same twice.
STAYS = {"weak reference", "weak dict", "lock", "torch generator", "numpy generator", "numpy random state", "random"}


class Things(Dataset):
    def __init__(self, things):
        self.things = list(things.items())

    def __len__(self):
        return len(self.things) + 1

    def __getitem__(self, index):
        if index == len(self.things):
            Changed.total = "of the worker"
            raise Problem(5, "raised in the worker")
        name, (thing, holds) = self.things[index]
        verdict = attempt(holds, thing)
        return name, verdict, None if name in STAYS else thing


def attempt(holds, thing):
    try:
        return "" if holds(thing) else "does not hold"
    except Exception as error:
        return repr(error)


def as_it_is(sample):
    return sample


def is_ours(thing, original):
    if isinstance(original, type | types.FunctionType | types.ModuleType | Singleton | logging.Logger):
        return thing is original
    if isinstance(original, enum.Enum):
        return thing is original or isinstance(original, enum.Flag) and thing == original
    return type(thing) is type(original)


def main():
    things = everything()
    report = {}
    batches = iter(DataLoader(Things(things), batch_size=None, collate_fn=as_it_is, num_workers=1,
                              multiprocessing_context="spawn"))
    for expected, (original, holds) in things.items():
        try:
            name, there, back = next(batches)
        except Exception as error:
            report[expected] = f"did not arrive: {error}"
            continue
        here = "" if name in STAYS or name == "shared globals" else attempt(holds, back)
        same = "" if name in STAYS or is_ours(back, original) else f"{back!r} is not {original!r}"
        report[name] = " ".join(filter(None, (there and f"in the worker: {there}", here and f"here: {here}", same)))
    try:
        next(batches)
    except Problem as error:
        report["error class"] = "" if "raised in the worker" in str(error) else str(error)
    report["class state"] = "" if Changed.total == 42 else f"set by a result: {Changed.total}"
    print(json.dumps(report))
"""

NAMES = [
    *(line.split('"')[1] for line in DEFINITIONS.splitlines() if line.startswith('        "')),
    "error class",
    "class state",
]

NOTEBOOK = """
import sys, types
module = types.ModuleType("__main__")
sys.modules["__main__"] = sys.modules["__mp_main__"] = module
for cell in {cells!r}:
    exec(compile(cell, "<cell>", "exec"), vars(module))
"""


def in_function() -> str:
    body = textwrap.indent(DEFINITIONS + RUN, "    ")
    return f"{IMPORTS}\ndef program():\n{body}\n    main()\n\nif __name__ == '__main__':\n    program()\n"


FORMS = {
    "script": IMPORTS + DEFINITIONS + RUN + "\nmain()\n",
    "guarded": IMPORTS + DEFINITIONS + RUN + "\nif __name__ == '__main__':\n    main()\n",
    "notebook": NOTEBOOK.format(cells=[IMPORTS, DEFINITIONS, RUN, "main()"]),
    "function": in_function(),
}


@pytest.fixture(scope="module")
def known() -> dict[str, Ended]:
    """How the programs ended: one run of each serves all tests."""
    return {}


@pytest.fixture
def reports(known: dict[str, Ended], start_script: Callable[..., Script]) -> Callable[[str], dict[str, Any]]:
    def report(form: str) -> dict[str, Any]:
        if form not in known:
            script = start_script(FORMS[form], env={"ANTIFREEZE": "require"})
            known[form] = script.wait_exit(within_s=100)
            script.assert_gone()
        return dict(json.loads(known[form].check().stdout))

    return report


@pytest.mark.long(but=16)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_works_in_a_worker_and_comes_back_as_the_trainers(
    reports: Callable[[str], dict[str, Any]], form: str, name: str
) -> None:
    assert reports(form)[name] == ""


@pytest.mark.long(but=2)
@pytest.mark.parametrize("form", FORMS)
def test_the_list_is_complete(reports: Callable[[str], dict[str, Any]], form: str) -> None:
    assert sorted(reports(form)) == sorted(NAMES)
