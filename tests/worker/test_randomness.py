"""The state of all generators that a dataset depends on, and back."""

import functools
import pickle
import random
import sys
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze.engine.worker import randomness as randomness_module
from antifreeze.engine.worker.birth import reseed
from antifreeze.engine.worker.exchange import Exchange
from antifreeze.engine.worker.randomness import MOST_OBJECTS, Randomness
from antifreeze.engine.worker.recipe import Recipe


def recipe_of(dataset: Any, collate_fn: Any = None) -> Recipe:
    return Recipe(dataset, collate_fn, True, None, 0, 1, 1)


class Transform:
    def __init__(self) -> None:
        self.python = random.Random(5)


class Dataset:
    def __init__(self) -> None:
        self.numpy = np.random.default_rng(1)
        self.legacy = np.random.RandomState(2)
        self.torch = torch.Generator().manual_seed(3)
        self.transforms = [Transform(), {"deep": np.random.default_rng(4)}]
        self.partial = functools.partial(max, key=random.Random(6))
        self.lazy: Any = None
        inside = random.Random(7)
        self.closure = lambda: inside.random() + 0

    def draw(self) -> list[Any]:
        if self.lazy is None:
            self.lazy = np.random.default_rng(8)
        return [
            torch.rand(2).tolist(),
            random.random(),
            np.random.rand(),
            self.numpy.random(),
            self.legacy.rand(),
            torch.rand(1, generator=self.torch).item(),
            self.transforms[0].python.random(),
            self.transforms[1]["deep"].random(),
            self.partial.keywords["key"].random(),
            self.lazy.random(),
            self.closure(),
        ]


def test_another_worker_draws_what_the_lost_one_would_have_drawn() -> None:
    lost = Dataset()
    randomness = Randomness(recipe_of(lost))
    for _ in range(3):
        lost.draw()
    state = randomness.state()
    expected = [lost.draw() for _ in range(3)]
    fresh = Dataset()
    Randomness(recipe_of(fresh)).restore(state)
    assert [fresh.draw() for _ in range(3)] == expected


def test_a_snapshot_is_not_changed_by_what_is_drawn_after_it() -> None:
    dataset = Dataset()
    dataset.draw()
    randomness = Randomness(recipe_of(dataset))
    state = randomness.state()
    first = dataset.draw()
    dataset.draw()
    randomness.restore(state)
    assert dataset.draw() == first


@pytest.mark.parametrize("wrap", [lambda inner: torch.utils.data.Subset(inner, [0]), lambda inner: [inner]])
def test_generators_are_found_inside_wrappers_and_in_bound_collate_functions(wrap: Any) -> None:
    dataset, collator = Dataset(), Transform()
    dataset.draw()
    randomness = Randomness(recipe_of(wrap(dataset), collator.python.random))
    state = randomness.state()
    first = (dataset.draw(), collator.python.random())
    randomness.restore(state)
    assert (dataset.draw(), collator.python.random()) == first


def test_the_search_is_bounded_and_data_is_not_looked_through() -> None:
    class Large:
        def __init__(self) -> None:
            self.rng = random.Random(1)
            self.paths = [str(number) for number in range(1_000_000)]
            self.nested = [[[[number] for number in range(20)] for _ in range(60)] for _ in range(60)]

    dataset = Large()
    randomness = Randomness(recipe_of(dataset))
    state = randomness.state()
    assert len(state) < 20_000
    first = dataset.rng.random()
    randomness.restore(state)
    assert dataset.rng.random() == first
    assert len(pickle.loads(state)[3]) == 1
    assert MOST_OBJECTS < 60 * 60 * 20


class Cropping:
    def __init__(self, data: Any) -> None:
        self.data = data
        self.transforms = [functools.partial(pow, 2), [Transform()]]

    def draw(self) -> float:
        inner: Any = self.transforms[1]
        return float(inner[0].python.random())


DATA: dict[str, Any] = {
    "many arrays": lambda: [{f"{scan}": np.zeros(1) for scan in range(25)} for _ in range(250)],
    "many lists": lambda: {patient: [[{"at": [scan]}] for scan in range(40)] for patient in range(200)},
    "a long list": lambda: [{"at": [number]} for number in range(10_000)],
    "a long dict of long lists": lambda: {number: [[number]] * 300 for number in range(300)},
}


@pytest.mark.parametrize("data", DATA)
def test_data_do_not_hide_the_generators_of_transforms(data: str) -> None:
    dataset = Cropping(DATA[data]())
    randomness = Randomness(recipe_of(dataset))
    state = randomness.state()
    first = dataset.draw()
    randomness.restore(state)
    assert dataset.draw() == first
    assert randomness.is_whole


@pytest.mark.parametrize(
    "held",
    [
        lambda: [random.Random(number) for number in range(1000)],
        lambda: tuple(np.random.RandomState(number) for number in range(257)),
        lambda: {number: {"path": "a", "rng": random.Random(number)} for number in range(300)},
        lambda: deque({random.Random(number)} for number in range(300)),
        lambda: [[[number], {"box": [0], "rng": random.Random(number)}] for number in range(256) for _ in range(8)],
        lambda: [{"rng": random.Random(number), **{f"{k}": [k] for k in range(30)}} for number in range(250)],
    ],
    ids=["list", "tuple", "dict", "sets", "lists", "more objects than are looked at"],
)
def test_generators_by_the_hundred_are_known_not_to_be_all(held: Any) -> None:
    dataset = Holding(held(), None)
    dataset.own = random.Random(1)  # type: ignore[attr-defined]
    randomness = Randomness(recipe_of(dataset))
    assert not randomness.is_whole
    assert set(randomness.find()) == {(("attribute", "dataset"), ("attribute", "own"))}


cv2: Any = types.ModuleType("cv2")  # what stands for it here
cv2.randn = randn = abs
shortened = cv2


def of_opencv(noise: Any) -> None:
    cv2.randn(noise, 0, 1)


def under_another_name(noise: Any) -> Any:
    return [shortened.kmeans(each, 2, None, (3, 1, 1.0), 1, 0) for each in noise]


def imported_inside(noise: Any) -> None:
    import cv2 as cv  # type: ignore[import-not-found,unused-ignore]

    cv.randu(noise, 0, 1)


def by_itself(noise: Any) -> None:
    randn(noise)


def of_others(noise: Any) -> Any:
    return cv2.resize(noise, (1, 1)) + torch.randn(1).numpy() + np.random.randn(1)


@pytest.mark.parametrize("draw", [of_opencv, under_another_name, imported_inside, by_itself])
def test_the_generator_of_opencv_is_known_not_to_show_its_state(draw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", cv2)
    assert not Randomness(recipe_of(Holding(None, draw))).is_whole
    assert Randomness(recipe_of(Holding(None, of_others))).is_whole


def test_the_program_s_own_random_is_not_taken_twice() -> None:
    class Bound:
        def __init__(self) -> None:
            self.draw = random.random
            self.instance = random._inst  # type: ignore[attr-defined]

    assert pickle.loads(Randomness(recipe_of(Bound())).state())[3] == {}


def test_generators_that_are_not_drawn_from_stay_as_they_are_seen() -> None:
    dataset = Dataset()
    randomness = Randomness(recipe_of(dataset))
    watched = randomness.held_states()
    assert not any(each.has_changed() for each in watched for _ in range(20))
    dataset.draw()
    assert all(each.has_changed() for each in watched)


# --- where generators may be


class Slotted:
    __slots__ = ("empty", "rng")

    def __init__(self) -> None:
        self.rng = random.Random(11)


class OnTheClass:
    rng = np.random.default_rng(12)

    def draw(self) -> Any:
        return float(self.rng.random())


class Inheriting(OnTheClass):
    pass


MODULE_RNG = np.random.default_rng(13)


class FromTheModule:
    def draw(self) -> Any:
        return helper()


def helper() -> Any:
    return float(MODULE_RNG.random())


class Mine(random.Random):
    """A generator of the user's own class."""


def with_default(rng: random.Random = random.Random(14)) -> float:  # noqa: B008
    return rng.random()


class Holding:
    def __init__(self, thing: Any, draw: Any) -> None:
        self.thing = thing
        self._draw = draw

    def draw(self) -> Any:
        return self._draw(self.thing)


PLACES = {
    "slot": lambda: Holding(Slotted(), lambda held: held.rng.random()),
    "set": lambda: Holding({random.Random(15)}, lambda held: next(iter(held)).random()),
    "frozenset": lambda: Holding(frozenset({random.Random(15)}), lambda held: next(iter(held)).random()),
    "deque": lambda: Holding(deque([random.Random(16)]), lambda held: held[0].random()),
    "key that is an object": lambda: Holding(
        {Slotted(): random.Random(17)}, lambda held: next(iter(held.values())).random()
    ),
    "class attribute": OnTheClass,
    "attribute of a base class": Inheriting,
    "module global": FromTheModule,
    "default": lambda: Holding(with_default, lambda held: held()),
    "partial": lambda: Holding(functools.partial(pow, random.Random(18)), lambda held: held.args[0].random()),
    "bit generator": lambda: Holding(np.random.PCG64(19), lambda held: int(held.random_raw())),
    "children of a generator": lambda: Holding(
        np.random.default_rng(22), lambda held: float(held.spawn(1)[0].random() + held.random())
    ),
    "children of a bit generator": lambda: Holding(
        np.random.PCG64(23), lambda held: int(np.random.PCG64(held.seed_seq.spawn(1)[0]).random_raw())
    ),
    "seed sequence": lambda: Holding(
        np.random.SeedSequence(24), lambda held: int(held.spawn(1)[0].generate_state(1)[0])
    ),
    "subclass": lambda: Holding(Mine(20), lambda held: held.random()),
    "bound method": lambda: Holding(random.Random(21).random, lambda held: held()),
}


@pytest.mark.parametrize("place", PLACES)
def test_generators_are_found_wherever_the_dataset_keeps_them(place: str) -> None:
    dataset = PLACES[place]()
    dataset.draw()
    randomness = Randomness(recipe_of(dataset))
    state = randomness.state()
    first = [dataset.draw() for _ in range(3)]
    randomness.restore(state)
    assert [dataset.draw() for _ in range(3)] == first


def test_a_generator_that_has_no_state_costs_the_others_nothing() -> None:
    dataset = Holding([random.SystemRandom(), random.Random(22)], lambda held: held[1].random())
    randomness = Randomness(recipe_of(dataset))
    state = randomness.state()
    first = dataset.draw()
    randomness.restore(state)
    assert dataset.draw() == first


def test_generators_that_the_whole_process_shares_are_not_held_by_the_dataset() -> None:
    shared = [random.random, np.random.rand, random._inst, torch.default_generator]  # type: ignore[attr-defined]
    assert Randomness(recipe_of(Holding(shared, None))).find() == {}


def make_hostile(base: Any = object) -> Any:
    """An object that fails the test if anything is asked of it."""

    def fail(*_: Any) -> Any:
        pytest.fail("code of the user's was run")

    names = ("__getattribute__", "__getattr__", "__setattr__", "__eq__", "__hash__", "__repr__", "__len__", "__iter__")
    asked = dict.fromkeys((*names, "__bool__", "__getitem__", "__reduce_ex__"), fail)
    return base.__new__(type("Hostile", (base,), {**asked, "__class__": property(fail), "__dict__": property(fail)}))


class Owner:
    pass


@pytest.mark.parametrize(
    "strange",
    [
        lambda: weakref.proxy(Owner()),  # dead at once
        make_hostile,
        lambda: make_hostile(dict),
        lambda: make_hostile(list),
        lambda: {1: make_hostile()},
    ],
    ids=["dead proxy", "lazy proxy", "dict", "list", "value"],
)
def test_the_search_runs_nothing_of_the_users(strange: Any) -> None:
    dataset = Holding([strange(), random.Random(23)], lambda held: held[1].random())
    exchange = Exchange(recipe_of(dataset))
    randomness = Randomness(recipe_of(dataset))
    state, taken = randomness.state(), exchange.take()
    first = dataset.draw()
    randomness.restore(state)
    assert dataset.draw() == first
    exchange.give(taken)
    assert dataset.draw() == first


def test_a_search_that_fails_has_found_nothing_and_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("never seen before")

    monkeypatch.setattr(randomness_module, "ways", fail)
    randomness = Randomness(recipe_of(Dataset()))
    assert randomness.find() == {}
    randomness.restore(randomness.state())
    assert "never seen before" in capsys.readouterr().err


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.PCG64])
def test_a_seed_reaches_what_a_generator_spawns(make: Any) -> None:
    def after(source: str, used: int) -> Any:
        generator = make(used)
        generator.spawn(used) if make is np.random.default_rng else generator.seed_seq.spawn(used)
        reseed({(("attribute", "rng"),): generator}, source)
        seeds = getattr(generator, "bit_generator", generator).seed_seq
        return seeds.spawn(1)[0].generate_state(2).tolist()

    assert after("here", 1) == after("here", 2)
    assert after("here", 1) != after("there", 1)


RNG: random.Random | None = None


class MakingLate:
    """Makes generators when they are drawn from for the first time, in places of several kinds."""

    def __init__(self, others: int) -> None:
        self.by_name: dict[str, random.Random] = {}
        self.empty: random.Random | None = None
        self.others = [[{"in": [number]} for number in range(40)] for _ in range(others)]

    def draw(self) -> list[float]:
        global RNG
        if RNG is None:
            RNG = random.Random(1)
        if self.empty is None:
            self.empty = random.Random(2)
        if not hasattr(self, "absent"):
            self.absent = np.random.default_rng(3)
        if "here" not in self.by_name:
            self.by_name["here"] = random.Random(4)
        return [RNG.random(), self.empty.random(), self.absent.random(), self.by_name["here"].random()]


@pytest.fixture
def rng_of_the_module() -> Iterator[None]:
    global RNG
    RNG = None
    yield
    RNG = None


@pytest.mark.usefixtures("rng_of_the_module")
@pytest.mark.parametrize("others", [0, 40], ids=["few objects", "many objects"])
def test_a_generator_is_found_as_soon_as_it_has_been_made(others: int) -> None:
    dataset = MakingLate(others)
    randomness = Randomness(recipe_of(dataset))
    for _ in range(20):
        randomness.state()
    dataset.draw()
    state = randomness.state()
    expected = dataset.draw()
    randomness.restore(state)
    assert dataset.draw() == expected


@pytest.mark.usefixtures("rng_of_the_module")
def test_who_goes_back_to_before_a_generator_was_made_has_it_made_again() -> None:
    dataset = MakingLate(0)
    randomness = Randomness(recipe_of(dataset))
    randomness.note_vacancies()
    before = randomness.state()
    expected = [dataset.draw(), dataset.draw()]
    randomness.restore(before)
    assert randomness.is_exact
    assert RNG is None and dataset.empty is None and not dataset.by_name and not hasattr(dataset, "absent")
    assert [dataset.draw(), dataset.draw()] == expected


def test_a_generator_that_cannot_be_taken_away_is_told() -> None:
    dataset = MakingLate(0)
    randomness = Randomness(recipe_of(dataset))
    randomness.note_vacancies()
    before = randomness.state()
    dataset.others.append({random.Random(5)})  # type: ignore[arg-type]
    dataset.others.append([])
    randomness.restore(before)
    assert not randomness.is_exact


class MakingHolders:
    """Makes what holds a generator when it is drawn from for the first time, in places of several kinds."""

    of_the_class: random.Random | None = None

    def __init__(self) -> None:
        self.empty: Transform | None = None
        self.by_name: dict[str, Transform] = {}
        self.listed: list[random.Random | None] = [None, None]
        self.added: list[Transform] = []
        inside: random.Random | None = None

        def draw_inside() -> float:
            nonlocal inside
            inside = inside or random.Random(6)
            return inside.random()

        self.draw_inside = draw_inside

    def draw(self, name: str) -> list[float]:
        self.empty = self.empty or Transform()
        self.by_name.setdefault(name, Transform())
        self.listed[1] = self.listed[1] or random.Random(7)
        self.added += [Transform() for _ in range(2 - len(self.added))]
        MakingHolders.of_the_class = MakingHolders.of_the_class or random.Random(8)
        held = [self.empty, self.by_name[name], *self.added]
        own = [self.listed[1], MakingHolders.of_the_class]
        return [*(each.python.random() for each in held), *(each.random() for each in own), self.draw_inside()]


def test_what_was_made_to_hold_a_generator_is_made_again_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MakingHolders, "of_the_class", None)
    dataset = MakingHolders()
    randomness = Randomness(recipe_of(dataset))
    randomness.note_vacancies()
    before = randomness.state()
    expected = [dataset.draw("first"), dataset.draw("first")]
    since = randomness.state()
    after = [dataset.draw("second"), dataset.draw("first")]
    randomness.restore(since)
    assert randomness.is_exact and list(dataset.by_name) == ["first"]
    assert [dataset.draw("second"), dataset.draw("first")] == after
    randomness.restore(before)
    assert randomness.is_exact and not dataset.by_name and not dataset.added and dataset.listed == [None, None]
    assert [dataset.draw("first"), dataset.draw("first")] == expected


def test_workers_that_take_turns_each_make_their_own_of_what_holds_a_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MakingHolders, "of_the_class", None)
    dataset = MakingHolders()
    exchange = Exchange(recipe_of(dataset))
    one = other = exchange.take()
    drawn: list[list[float]] = []
    for _ in range(3):
        exchange.give(one)
        drawn.append(dataset.draw("a"))
        one = exchange.take()
        exchange.give(other)
        assert dataset.draw("a") == drawn[-1]
        other = exchange.take()
    assert drawn[0] != drawn[1] != drawn[2]


def test_what_a_dataset_lets_go_of_is_not_kept() -> None:
    dataset = Dataset()
    randomness = Randomness(recipe_of(dataset))
    randomness.note_vacancies()
    gone = weakref.ref(dataset.transforms[0])
    dataset.transforms.clear()
    randomness.find()
    assert gone() is None


def test_a_seed_follows_from_the_place_of_a_generator_and_not_from_those_that_are_there_beside_it() -> None:
    few, many = MakingLate(0), MakingLate(0)
    for dataset, names in ((few, "c"), (many, "abc")):
        dataset.by_name = {name: random.Random() for name in names}
        reseed(Randomness(recipe_of(dataset)).find(), "source")
    assert few.by_name["c"].random() == many.by_name["c"].random()
    assert many.by_name["a"].random() != many.by_name["b"].random()


def test_a_dict_that_keeps_an_order_keeps_it_when_a_generator_is_taken_away_and_put_back() -> None:
    dataset = MakingLate(0)
    dataset.by_name = OrderedDict()
    exchange = Exchange(recipe_of(dataset))
    before = exchange.take()
    dataset.by_name["one"] = random.Random(5)
    after = exchange.take()
    exchange.give(before)
    assert list(dataset.by_name) == []
    exchange.give(after)
    assert list(dataset.by_name) == ["one"]


def make_for_the_module() -> None:
    global RNG
    RNG = RNG or random.Random(4)


class MakingElsewhere:
    def draw(self) -> list[float]:
        make_for_the_module()
        return list(map(lambda _: RNG.random(), range(2)))  # type: ignore[union-attr]  # noqa: C417


@pytest.mark.usefixtures("rng_of_the_module")
def test_a_global_that_only_a_function_within_a_function_names_is_none_again() -> None:
    dataset = MakingElsewhere()
    randomness = Randomness(recipe_of(dataset))
    randomness.note_vacancies()
    before = randomness.state()
    expected = dataset.draw()
    randomness.restore(before)
    assert randomness.is_exact and dataset.draw() == expected


def test_where_a_look_takes_long_it_need_not_be_made_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness_module, "QUICK_S", 0.0)
    monkeypatch.setattr(randomness_module, "PAUSE", 1e9)
    dataset = MakingLate(0)
    randomness = Randomness(recipe_of(dataset))
    before = randomness.find()
    dataset.empty = random.Random(5)
    assert randomness.find(if_quick=True) == before and not randomness.is_sure
    assert len(randomness.find()) == len(before) + 1 and randomness.is_sure
    dataset.empty = random.Random(6)
    assert dataset.empty in randomness.find(if_quick=True).values() and randomness.is_sure
