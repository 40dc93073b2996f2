"""Calls that set how processes are started and how many threads libraries use; the main guard."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from antifreeze.doctor.facts import Clash, Place
from antifreeze.probes.source.files import File
from antifreeze.probes.source.loaders import constant
from antifreeze.probes.source.program import CallSite, Origin, Program
from antifreeze.probes.syntax import ancestors, comes_before, is_main_guard

_SET = "multiprocessing.set_start_method"
_ASK = "multiprocessing.get_start_method"
_THREADS = frozenset(
    (
        "torch.set_num_threads",
        "torch.set_num_interop_threads",
        "cv2.setNumThreads",
        "numexpr.set_num_threads",
        "mkl.set_num_threads",
        "numba.set_num_threads",
        "threadpoolctl.threadpool_limits",
        "pyarrow.set_cpu_count",
    )
)


def calls(program: Program, names: frozenset[str]) -> Iterator[CallSite]:
    for file in program.files:
        for node in file.nodes:
            if isinstance(node, ast.Call) and file.names.called(node) in names:
                yield CallSite(file, node)


def start_methods(program: Program) -> tuple[Place, ...]:
    return tuple(file.place(node, text=file.written(node)) for file, node in calls(program, frozenset((_SET,))))


def start_method(program: Program) -> str | None:
    """The one that is set, if all calls agree on it."""
    said = {_method(program, site) for site in calls(program, frozenset((_SET,)))}
    return said.pop() if len(said) == 1 else None


def _method(program: Program, site: CallSite) -> str | None:
    given = [*site.node.args[:1], *(each.value for each in site.node.keywords if each.arg == "method")]
    return constant(program, Origin(site.file, given[0]), str) if given else None


def start_method_clashes(program: Program) -> tuple[Clash, ...]:
    sites = list(calls(program, frozenset((_SET, _ASK))))
    return tuple(
        Clash(settled=earlier.file.place(earlier.node), set_again=later.file.place(later.node))
        for later in sites
        if _may_raise(later)
        for earlier in sites
        if earlier.file is later.file and _fixes(earlier) and _runs_before(earlier, later)
    )


def _may_raise(site: CallSite) -> bool:
    """Whether it is `set_start_method` without `force`, outside of a `try`."""
    is_forced = any(each.arg in ("force", None) for each in site.node.keywords) or len(site.node.args) > 1
    is_caught = any(isinstance(each, ast.Try) for each in ancestors(site.file.parents, site.node))
    return site.file.names.called(site.node) == _SET and not is_forced and not is_caught


def _fixes(site: CallSite) -> bool:
    """`get_start_method()` settles on the default for good; `get_start_method(allow_none=True)` does not."""
    return site.file.names.called(site.node) == _SET or not (site.node.args or site.node.keywords)


def _runs_before(earlier: CallSite, later: CallSite) -> bool:
    if earlier.node is later.node:
        return False
    parents = earlier.file.parents
    return comes_before(parents, earlier.node, later.node)


def thread_settings(program: Program) -> tuple[Place, ...]:
    return tuple(file.place(node, text=file.written(node)) for file, node in calls(program, _THREADS))


def has_main_guard(script: File) -> bool:
    return any(is_main_guard(node) for node in script.nodes)
