"""Lines are found in the source, without running anything."""

import contextlib
import functools
import inspect
import threading
from dataclasses import dataclass, field
from typing import Any

import torch

from antifreeze.probes.objects import origins


class Base:
    shared = threading.Lock()

    def __init__(self) -> None:
        self.from_base = threading.Lock()


class Kept(Base):
    def __init__(self) -> None:
        super().__init__()
        self.later = None
        self.first, (self.second, *self.others) = 1, (threading.Lock(), 2)
        with contextlib.nullcontext(3) as self.inside:
            self.annotated: Any = threading.Lock()

    def open(this) -> None:  # noqa: N805 - a name like any other
        this.later = threading.Lock()

    @property
    def trap(self) -> Any:
        raise AssertionError("nobody may ask")


@dataclass
class Record:
    lock: Any = field(default_factory=threading.Lock)


def text_at(owner: Any, attribute: str) -> str | None:
    found = origins.assigned_at(owner, attribute)
    return None if found is None else found.text


def test_the_line_that_assigns_an_attribute_is_found() -> None:
    kept = Kept()
    assert text_at(kept, "second") == "self.first, (self.second, *self.others) = 1, (threading.Lock(), 2)"
    assert text_at(kept, "others") == text_at(kept, "second")
    assert text_at(kept, "inside") == "with contextlib.nullcontext(3) as self.inside:"
    assert text_at(kept, "annotated") == "self.annotated: Any = threading.Lock()"
    assert text_at(kept, "from_base") == "self.from_base = threading.Lock()"
    assert text_at(kept, "shared") == "shared = threading.Lock()"
    assert text_at(Record(), "lock") == "lock: Any = field(default_factory=threading.Lock)"


def test_a_line_that_gives_it_more_than_a_literal_goes_before() -> None:
    assert text_at(Kept(), "later") == "this.later = threading.Lock()"


def test_what_is_assigned_nowhere_and_what_is_not_the_users_has_no_line() -> None:
    assert text_at(Kept(), "nothing") is None
    assert text_at(torch.nn.Linear(1, 1), "in_features") is None


def test_of_two_classes_of_one_name_the_right_one_is_found() -> None:
    def make() -> list[type]:
        found: list[type] = []
        for _ in range(1):

            class Twice:
                def one(self) -> None: ...

            found.append(Twice)

            class Twice:  # type: ignore[no-redef]
                def two(self) -> None: ...

            found.append(Twice)
        return found

    one, two = (origins.class_at(kind) for kind in make())
    assert one is not None and two is not None
    assert two.line == one.line + 5


def test_functions_have_the_line_of_their_code() -> None:
    def function() -> None: ...

    line = inspect.getsourcelines(function)[1]
    for thing in (function, functools.partial(function), functools.partial(functools.partial(function))):
        found = origins.place_of(thing)
        assert found is not None
        assert (found.line, found.function) == (line, "function")
        assert found.file.endswith("test_origins.py")
    assert origins.place_of(torch.utils.data.default_collate) is None
    assert origins.place_of(len) is None


def test_methods_and_objects_that_are_called_have_lines_too() -> None:
    found = origins.place_of(Kept().open)
    assert found is not None and found.text.startswith("def open(this)")
    found = origins.place_of(Kept())
    assert found is not None and found.text == "class Kept(Base):"


def test_a_file_that_cannot_be_parsed_has_no_tree(tmp_path: Any) -> None:
    sick = tmp_path / "sick.py"
    sick.write_text("def (")
    assert origins.tree_of(str(sick)) is None
    assert origins.definitions_in(str(sick)) == ()


def test_the_splits_of_a_path_name_what_leads_on() -> None:
    assert list(origins._splits("a.b[0].c")) == [("a.b[0]", "c"), ("a", "b")]
