"""One look at a live loader, in the target's own process, when it is iterated for the first time.

No exception leaves this file, and it takes two seconds at most: a part that fails or takes too long is left unknown.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert

from antifreeze.doctor.facts import Loader, Obstacle, Place, made_of
from antifreeze.engine.crossing.reading import ancestors, attributes_of, is_a, module_of
from antifreeze.machine import descriptor_limit
from antifreeze.probes.objects.bulks import find_bulks
from antifreeze.probes.objects.double import ask_double
from antifreeze.probes.objects.held import find_held
from antifreeze.probes.objects.obstacles import crosses, find_obstacles
from antifreeze.probes.objects.origins import class_at, place_of
from antifreeze.probes.objects.pools import native_pools, other_threads
from antifreeze.probes.objects.reach import Reach

WALK_S = 0.3
# For each question to a double, and for the search behind it, which must come to its end a little earlier.
QUESTION_S = 0.4
SEARCH_S = 0.3
_QUALIFIED_NAME: Any = type.__dict__["__qualname__"]


def look_at(
    loader: DataLoader[Any], *, number: int, built_at: Place | None = None, iterated_at: Place | None = None
) -> Loader:
    """All that can be told about a loader before its workers start; it and the program stay as they are."""
    return _Look(loader).told(Loader(number=number, built_at=built_at, iterated_at=iterated_at))


class _Look:
    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._held = attributes_of(loader)
        self._unseen: list[str] = []
        self._start_method: str | None = None

    def told(self, loader: Loader) -> Loader:
        self._start_method = self._ask("start_method", self._find_start_method, None)
        facts: dict[str, Any] = {"start_method": self._start_method}
        # Last the double: some libraries end their threads when a process forks, and start them again when needed.
        parts = {
            "settings": self._settings,
            "code": self._code,
            "program": self._program,
            "objects": self._live_objects,
            "obstacles": self._answers_of_a_double,
        }
        for name, part in parts.items():
            facts |= self._ask(name, part, {})
        return dataclasses.replace(loader, **facts, unseen=tuple(self._unseen))

    def _ask(self, name: str, question: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return question()
        except Exception:  # whatever it is: a look at a program must not become an error of it
            self._unseen.append(name)
            return otherwise

    # --- the parts

    def _settings(self) -> dict[str, Any]:
        held, sampler = self._held, self._sampler()
        batch_size = held.get("batch_size")
        if batch_size is None and held.get("batch_sampler") is not None:
            batch_size = attributes_of(held["batch_sampler"]).get("batch_size")
        return {
            "num_workers": int(held["num_workers"]),
            "batch_size": batch_size if type(batch_size) is int else None,
            "prefetch_factor": held.get("prefetch_factor"),
            "drop_last": bool(held.get("drop_last")),
            "persistent_workers": bool(held.get("persistent_workers")),
            "pin_memory": bool(held.get("pin_memory")),
            "timeout_s": float(held.get("timeout") or 0),
            "in_order": bool(held.get("in_order", True)),
            "is_iterable": is_a(held["dataset"], IterableDataset),
            "dataset": _name_of(held["dataset"]),
            "sampler": "" if sampler is None else _name_of(sampler),
        }

    def _sampler(self) -> Any:
        """The one that is not torch's, of the batches or of the samples."""
        for name in ("batch_sampler", "sampler"):
            sampler = self._held.get(name)
            if sampler is not None and not module_of(sampler).startswith("torch."):
                return sampler
        return None

    def _code(self) -> dict[str, Any]:
        collate, init = self._held.get("collate_fn"), self._held.get("worker_init_fn")
        return {
            "dataset_at": class_at(type(self._held["dataset"])),
            "has_default_collate": collate is default_collate or collate is default_convert,
            "collate_at": place_of(collate),
            "worker_init_at": None if init is None else place_of(init),
        }

    def _find_start_method(self) -> str:
        """How torch would start workers; asking must not settle the program's default."""
        context = self._held.get("_DataLoader__multiprocessing_context") or multiprocessing
        found: str | None = context.get_start_method(allow_none=True)
        return found or multiprocessing.get_all_start_methods()[0]

    def _answers_of_a_double(self) -> dict[str, Any]:
        parts, method = self._parts(), self._start_method
        answers = ask_double(
            {
                "samples": lambda: len(self._held["dataset"]),
                "batches": lambda: len(self._loader),
                "obstacles": lambda: _plain(find_obstacles(parts, start_method=method, patience_s=SEARCH_S)),
                "crosses": lambda: crosses(parts, patience_s=SEARCH_S),
            },
            each_s=QUESTION_S,
        )
        obstacles, is_whole = answers.pop("obstacles", ((), False))
        if not is_whole:
            self._unseen.append("obstacles")
        return {**answers, "obstacles": tuple(made_of(Obstacle, each) for each in obstacles)}

    def _live_objects(self) -> dict[str, Any]:
        reach = Reach(self._parts(), patience_s=WALK_S)
        if not reach.is_whole:
            self._unseen.extend(("held", "bulks"))
        return {
            "held": self._ask("held", lambda: find_held(reach), ()),
            "bulks": self._ask("bulks", lambda: find_bulks(reach), ()),
        }

    def _program(self) -> dict[str, Any]:
        return {
            "threads": self._ask("threads", other_threads, ()),
            "pools": self._ask("pools", native_pools, ()),
            "is_cuda_initialized": torch.cuda.is_initialized(),
            "descriptors": descriptor_limit(),
        }

    def _parts(self) -> Mapping[str, Any]:
        return {name: self._held.get(name) for name in ("dataset", "collate_fn", "worker_init_fn")}


def _plain(found: tuple[list[Obstacle], bool]) -> tuple[list[dict[str, Any]], bool]:
    return [dataclasses.asdict(each) for each in found[0]], found[1]


def _name_of(thing: Any) -> str:
    kind = ancestors(type(thing))[0]
    module, name = module_of(kind), str(_QUALIFIED_NAME.__get__(kind))
    return name if module in ("__main__", "builtins") else f"{module}.{name}"
