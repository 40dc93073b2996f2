"""What a check is, and the two decorators that make one of a function.

A check looks for one problem. Its file in `checks/` is called like the problem and has

- a docstring: the problem in one sentence, then paragraphs that begin with `What happens:`, `How we know:`, `What to do:`,
  `Looks like:` (what it is confused with, by code) and `Read on:` (links). It is `antifreeze explain CODE` and the page in
  `docs/checks/`, so it is written for users.
- a function with one of the decorators below: code, name, an example that has the problem and one that has not. The
  examples are the tests of the check, and the sick one is in its page.

The function is pure, and silent where a fact is missing: a wrong diagnosis costs more than none.

To add a check: its file, and facts of a program that has the problem in `tests/doctor/test_zoo_by_hand.py`. `make docs`
then writes its page and its line in `codes.py`. If it explains others, or others it, that stands in `precedence.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from antifreeze.doctor.cases import LoaderCase, loader_cases
from antifreeze.doctor.facts import Facts, Raised, Stuck
from antifreeze.doctor.finding import Finding
from antifreeze.doctor.waits import sample_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Looks for one problem."""

    code: str
    name: str
    sick: Facts
    healthy: Facts
    module: str
    """The name of its module, whose docstring is the page."""
    judge: Callable[[Facts], Iterable[Finding]] = field(repr=False)

    def examine(self, facts: Facts) -> list[Finding]:
        return [_filled_in(replace(finding, code=self.code)) for finding in self.judge(facts)]


REGISTERED: list[Check] = []
"""The checks of all modules that have been imported; `checks.CHECKS` are all there are."""


def check(
    code: str, name: str, *, sick: Facts, healthy: Facts
) -> Callable[[Callable[[LoaderCase], Iterable[Finding]]], Check]:
    """For a function that judges one loader; the number of the loader is filled into its findings."""

    def register(judge: Callable[[LoaderCase], Iterable[Finding]]) -> Check:
        def judge_all(facts: Facts) -> Iterator[Finding]:
            for case in loader_cases(facts):
                for finding in judge(case):
                    yield replace(finding, loader=case.number)

        return _register(
            Check(code=code, name=name, sick=sick, healthy=healthy, module=judge.__module__, judge=judge_all)
        )

    return register


def program_check(
    code: str, name: str, *, sick: Facts, healthy: Facts
) -> Callable[[Callable[[Facts], Iterable[Finding]]], Check]:
    """For a function that judges the program and its machine as a whole."""

    def register(judge: Callable[[Facts], Iterable[Finding]]) -> Check:
        return _register(Check(code=code, name=name, sick=sick, healthy=healthy, module=judge.__module__, judge=judge))

    return register


def _filled_in(finding: Finding) -> Finding:
    """With worker, process and sample of what it was seen in."""
    seen = finding.seen
    if seen is None:
        return finding
    sample = sample_at(seen) if isinstance(seen, Stuck) else seen.sample
    pid = None if isinstance(seen, Raised) else seen.pid
    return replace(finding, worker=seen.worker, pid=pid, sample=finding.sample or sample)


def _register(made: Check) -> Check:
    REGISTERED.append(made)
    return made
