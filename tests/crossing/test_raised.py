"""What user code raised in a worker, on its way to the trainer."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from antifreeze.engine.crossing import results
from antifreeze.engine.crossing.raised import DEEPEST, MOST_BYTES, load_error, wrap
from antifreeze.engine.showing import add_note
from antifreeze.errors import SampleFailed

WHERE = "in DataLoader worker process 0"


class Picky(Exception):
    """Neither its constructor nor its pickle takes one text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Indexed(Exception):
    """Makes its own text of what it holds."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __str__(self) -> str:
        return f"bad sample {self.index}"


class Slotted(Exception):
    __slots__ = ("index",)

    def __init__(self, text: str, index: int = -1) -> None:
        super().__init__(text)
        self.index = index


@dataclass
class Data(Exception):
    index: int
    path: str


@dataclass(frozen=True)
class Frozen(Exception):
    index: int


class Locked(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


class Unasked(Exception):
    """Shows nothing of itself but what Python needs."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise RuntimeError(name)


class Hidden(Exception):
    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise RuntimeError


class Several(ExceptionGroup[Exception]):
    pass


class Counted(ExceptionGroup[Exception]):
    """A group whose constructor wants something else."""

    def __new__(cls, parts: list[Exception]) -> "Counted":
        return super().__new__(cls, f"{len(parts)} parts", parts)


def nothing(reference: Any) -> Any:
    raise AssertionError(reference)


def cross(error: Exception) -> Any:
    """What arrives of an exception that a worker has raised."""
    try:
        raise error
    except Exception:
        return load_error(results.dump(wrap(where=WHERE)), nothing)


def chained(error: Exception, cause: Exception | None = None, context: Exception | None = None) -> Exception:
    error.__context__ = context
    if cause is not None:
        error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [ValueError("text"), KeyError("key"), Picky(3, "text")], ids=repr)
def test_an_exception_keeps_its_type_and_has_torchs_text(error: Exception) -> None:
    arrived = cross(error)
    assert type(arrived) is type(error)
    assert str(arrived).startswith(f"Caught {type(error).__name__} {WHERE}.\nOriginal Traceback")


def test_attributes_arrive() -> None:
    simple = ValueError("text")
    simple.index, simple.nested = 3, {"path": ["a", 1]}  # type: ignore[attr-defined]
    for error, names in [
        (simple, ("index", "nested")),
        (Picky(3, "text"), ("code",)),
        (Slotted("text", 4), ("index",)),
        (Data(5, "a.png"), ("index", "path")),
    ]:
        arrived = cross(error)
        assert type(arrived) is type(error)
        assert str(arrived).startswith(f"Caught {type(error).__name__} {WHERE}.")
        assert [getattr(arrived, name) for name in names] == [getattr(error, name) for name in names]


def test_attributes_of_pythons_own_classes_arrive_where_the_text_stays_torchs() -> None:
    gone = cross(FileNotFoundError(2, "No such file", "a.png"))
    assert type(gone) is FileNotFoundError and gone.errno == 2
    assert str(gone).startswith("Caught FileNotFoundError") and "a.png" in str(gone)
    missing = cross(ModuleNotFoundError("no module", name="lmdb"))
    assert missing.name == "lmdb" and str(missing).startswith("Caught ModuleNotFoundError")


@pytest.mark.parametrize(
    "error", [Frozen(3), Locked("text"), Unasked("text"), Hidden("text")], ids=lambda e: type(e).__name__
)
def test_a_class_that_refuses_attributes_arrives_as_any_other(error: Exception) -> None:
    cause = ValueError("why")
    BaseException.__cause__.__set__(error, cause)  # type: ignore[attr-defined]
    arrived = cross(error)
    assert type(arrived) is type(error)
    assert str(arrived).startswith(f"Caught {type(error).__name__} {WHERE}.\nOriginal ")
    assert repr(arrived.__cause__) == repr(cause)
    if isinstance(error, Frozen):
        assert arrived.index == 3
    add_note(arrived, "note")
    assert isinstance(error, Hidden) or arrived.__notes__ == ["note"]


def test_an_exception_in_a_chain_may_refuse_attributes() -> None:
    arrived = cross(chained(ValueError("text"), cause=Frozen(3)))
    assert type(arrived.__cause__) is Frozen and arrived.__cause__.index == 3


def test_an_exception_that_makes_its_own_text_has_torchs_as_a_note() -> None:
    arrived = cross(Indexed(7))
    assert type(arrived) is Indexed and arrived.index == 7 and str(arrived) == "bad sample 7"
    (note,) = arrived.__notes__
    assert note.startswith(f"Caught Indexed {WHERE}.\nOriginal Traceback")


def test_an_exception_that_torch_cannot_make_arrives_as_it_is() -> None:
    arrived = cross(UnicodeDecodeError("utf-8", b"ab\xff", 2, 3, "invalid start byte"))
    assert type(arrived) is UnicodeDecodeError
    assert (arrived.start, arrived.object, arrived.reason) == (2, b"ab\xff", "invalid start byte")
    assert arrived.__notes__[0].startswith(f"Caught UnicodeDecodeError {WHERE}.")


def test_notes_causes_and_contexts_arrive() -> None:
    error = chained(ValueError("caused"), cause=Picky(1, "cause"), context=KeyError("context"))
    error.add_note("a note")
    arrived = cross(error)
    assert arrived.__notes__ == ["a note"]
    assert type(arrived.__cause__) is Picky and arrived.__cause__.code == 1
    assert arrived.__suppress_context__
    found = cross(chained(ValueError("found"), context=OSError(2, "gone")))
    assert type(found.__context__) is FileNotFoundError and found.__context__.errno == 2 and found.__cause__ is None


def test_a_group_has_its_own_attributes() -> None:
    group = Several("several", [ValueError(1)])
    group.index = 3  # type: ignore[attr-defined]
    group.add_note("a note")
    arrived = cross(group)
    assert arrived.index == 3 and arrived.__notes__ == ["a note"]


class Refusing:
    """Can be pickled, and not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def test_what_cannot_be_sent_is_left_out_and_the_rest_arrives() -> None:
    error = ValueError("text")
    error.index, error.generator, error.refusing = 3, (x for x in "ab"), Refusing()  # type: ignore[attr-defined]
    error.large, error.many = torch.zeros(MOST_BYTES), list(range(MOST_BYTES))  # type: ignore[attr-defined]
    arrived = cross(error)
    assert type(arrived) is ValueError and arrived.index == 3
    assert not {"generator", "refusing", "large", "many"} & vars(arrived).keys()


def test_large_tensors_are_not_copied_to_find_that_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("pickled")

    monkeypatch.setattr(torch.Tensor, "__reduce_ex__", never)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        results.dump_small({"deep": [torch.zeros(100)]}, most_bytes=100)


def test_a_group_keeps_its_parts_with_types_texts_and_notes() -> None:
    noted = ValueError("one", 1)
    noted.add_note("a note")
    arrived = cross(ExceptionGroup("several", [noted, KeyError("another")]))
    assert type(arrived) is ExceptionGroup
    assert str(arrived).startswith(f"Caught ExceptionGroup {WHERE}.\nOriginal")
    first, second = arrived.exceptions
    assert type(first) is ValueError and first.args == ("one", 1) and first.__notes__ == ["a note"]
    assert type(second) is KeyError and second.args == ("another",)


def test_except_star_works() -> None:
    seen = []
    try:
        raise cross(ExceptionGroup("several", [ValueError(1), KeyError(2), ValueError(3)]))
    except* ValueError as group:
        seen = [error.args[0] for error in group.exceptions]
    except* KeyError:
        pass
    assert seen == [1, 3]


def test_groups_in_groups_keep_their_kind_and_message() -> None:
    arrived = cross(Several("outer", [Several("inner", [OSError(2, "no file")]), ValueError("x")]))
    assert type(arrived) is Several
    inner = arrived.exceptions[0]
    assert type(inner) is Several and inner.message == "inner"
    assert type(inner.exceptions[0]) is FileNotFoundError and inner.exceptions[0].errno == 2


def test_a_group_that_cannot_be_made_anew_is_still_a_group_of_the_same_parts() -> None:
    arrived = cross(Counted([ValueError("one")]))
    assert type(arrived) is ExceptionGroup
    assert [type(part) for part in arrived.exceptions] == [ValueError]


def test_each_part_travels_as_far_as_it_can() -> None:
    class Local(Exception):
        pass

    holding = ValueError("holds a generator", (x for x in "ab"))
    results.remember([])  # as in a worker of a clean stem: what is made there goes by value
    try:
        arrived = cross(ExceptionGroup("several", [Picky(3, "text"), holding, Local("made in the worker")]))
    finally:
        results._numbers = None
    picky, held, local = arrived.exceptions
    assert type(picky) is Picky and "3: text" in str(picky)
    assert type(held) is ValueError and "holds a generator" in str(held)
    assert type(local).__name__ == "Local" and str(local) == "made in the worker"


def test_causes_and_contexts_of_parts_arrive() -> None:
    caused = chained(ValueError("caused"), cause=OSError(2, "gone"), context=OSError(2, "gone"))
    found = chained(KeyError("found"), context=Picky(1, "while"))
    hidden = chained(TypeError("hidden"), context=ValueError("not to be seen"))
    hidden.__suppress_context__ = True
    first, second, third = cross(ExceptionGroup("several", [caused, found, hidden])).exceptions
    assert type(first.__cause__) is FileNotFoundError and first.__suppress_context__
    assert type(second.__context__) is Picky and not second.__suppress_context__
    assert third.__context__ is third.__cause__ is None and third.__suppress_context__


def test_a_chain_without_an_end_is_cut() -> None:
    error = ValueError("loop")
    other = chained(KeyError("loop"), context=error)
    error.__context__ = other
    (arrived,) = cross(ExceptionGroup("one", [error])).exceptions
    length = 0
    while arrived is not None:
        arrived, length = arrived.__context__, length + 1
    assert length == DEEPEST + 1


def test_what_cannot_be_rebuilt_says_so() -> None:
    assert isinstance(load_error(b"no pickle", nothing), SampleFailed)


def test_an_error_of_ours_arrives_as_it_is() -> None:
    arrived = load_error(results.dump(SampleFailed("what", why="because")), nothing)
    assert type(arrived) is SampleFailed and arrived.why == "because"
