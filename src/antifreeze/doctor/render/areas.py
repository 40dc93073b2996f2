"""One line for each area that was looked at: what is there, and whether something was found in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from antifreeze.codes import named
from antifreeze.doctor.facts import Facts, Loader, Machine, Outcome, ProcessPicture, Run, Source, Trial
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.render.words import OUTCOMES, count_of, has_program, size

MANY = {"child": "children"}
LOOKED_INTO = ("trainer", "worker", "our-worker")
OF_SHARED_MEMORY = ("AF204", "AF205", "AF902")


class Mark(StrEnum):
    """How it stands with an area."""

    GOOD = "✓"
    NOTE = "!"
    BAD = "✗"


@dataclass(frozen=True, slots=True)
class Area:
    """Something that was looked at."""

    name: str
    mark: Mark
    text: str
    brief: str
    """The text in a word or two, for a line that names several areas."""


def areas_of(facts: Facts, findings: Sequence[Finding]) -> list[Area]:
    """Those of a program, or, if there is none, those of the machine."""
    if has_program(facts):
        return list(_of_program(facts, findings))
    return list(_of_machine(facts.machine, findings)) if facts.machine else []


def _of_machine(machine: Machine, findings: Sequence[Finding]) -> Iterator[Area]:
    def area(name: str, text: str, *codes: str) -> Area:
        return Area(name, _mark(finding for finding in findings if finding.code in codes), text, text)

    yield area("processors", _processors(machine), "AF901")
    if machine.memory_available_bytes is not None:
        limit = f", of {size(machine.memory_limit_bytes)} (cgroup)" if machine.memory_limit_bytes else ""
        yield area("memory", f"{size(machine.memory_available_bytes)} free{limit}")
    yield area("/dev/shm", _shared_memory(machine), "AF902")
    if machine.descriptors_soft is not None:
        hard = "no hard limit" if machine.descriptors_hard is None else f"up to {machine.descriptors_hard} on request"
        yield area("descriptors", f"{machine.descriptors_soft}, {hard}", "AF903")
    set_ = ", ".join(f"{name}={value}" for name, value in machine.thread_settings.items())
    yield area("settings", f"start method {machine.start_method}; {set_ or 'no thread variables are set'}", "AF904")
    yield area("versions", ", ".join(f"{name} {version}" for name, version in machine.versions.items()))
    if machine.ptrace_scope is not None:
        yield area("stacks", _rights(machine.ptrace_scope))


def _of_program(facts: Facts, findings: Sequence[Finding]) -> Iterator[Area]:
    if facts.machine is not None:
        of_machine = [each for each in findings if each.code.startswith("AF9") and each.where is None]
        yield _machine(facts.machine, [each for each in of_machine if each.code not in OF_SHARED_MEMORY])
        about_memory = [finding for finding in findings if finding.code in OF_SHARED_MEMORY]
        mark, why = _mark(about_memory), _because(about_memory)
        room = _shared_memory(facts.machine)
        yield Area("/dev/shm", mark, f"{room}{why}", room)
    if facts.source is not None:
        known = {"AF901", "AF902", "AF903", "AF904"}
        yield _source(facts.source, [each for each in findings if each.loader is None and each.code not in known])
    if facts.run is not None and not facts.loaders:
        yield _script(facts.run)
    if facts.loaders:
        yield _loaders(facts, findings)
    if facts.trials:
        yield _trials(facts.trials)
    if facts.processes:
        yield _processes(facts.processes, findings)


def _mark(findings: Iterable[Finding]) -> Mark:
    weights = {finding.weight for finding in findings}
    return Mark.BAD if Weight.CERTAIN in weights else Mark.NOTE if weights else Mark.GOOD


def _because(findings: Sequence[Finding]) -> str:
    return f" — {named(findings[0].code)}" if findings else ""


def _machine(machine: Machine, findings: Sequence[Finding]) -> Area:
    brief = count_of(machine.usable_cpus, "CPU")
    memory = f"{size(machine.memory_available_bytes)} free" if machine.memory_available_bytes is not None else ""
    versions = [f"{name} {machine.versions[name]}" for name in ("python", "torch") if name in machine.versions]
    text = ", ".join(filter(None, [_processors(machine), memory, *versions]))
    return Area("machine", _mark(findings), f"{text}{_because(findings)}", brief)


def _processors(machine: Machine) -> str:
    usable = f"{count_of(machine.usable_cpus, 'CPU')} usable"
    if machine.usable_cpus == machine.cpus:
        return usable
    return f"{usable} ({'cgroup' if machine.cpu_quota else 'affinity'}; the machine has {machine.cpus})"


def _shared_memory(machine: Machine) -> str:
    if machine.shm_total_bytes is None:
        return "there is none"
    free = machine.shm_free_bytes
    is_empty = free is None or free > 0.9 * machine.shm_total_bytes
    return (
        size(machine.shm_total_bytes)
        if is_empty or free is None
        else f"{size(machine.shm_total_bytes)}, {size(free)} free"
    )


def _rights(scope: int) -> str:
    whom = ("any process of this user's", "own children only", "root only", "nobody")[min(scope, 3)]
    return f"kernel.yama.ptrace_scope={scope}: `antifreeze dump` may look into {whom}"


def _source(source: Source, findings: Sequence[Finding]) -> Area:
    files = count_of(max(len(source.files), 1), "file")
    seen = f"{count_of(len(source.datasets), 'dataset')}, {count_of(len(source.loaders), 'loader')}"
    if not source.unreadable:
        return Area("source", _mark(findings), f"{files}: {seen}", files)
    file, why = next(iter(source.unreadable.items()))
    return Area("source", Mark.BAD, f"{files}: {seen}; cannot read {file}: {why}", files)


def _script(run: Run) -> Area:
    """Of a script that never came to a loader."""
    if run.outcome is Outcome.OK:
        text = "none could be examined" if run.reached_a_loader else "none was iterated before the script ended"
        return Area("loaders", Mark.NOTE, text, text)
    said = f": {run.raised.type}: {run.raised.message}" if run.raised else ""
    text = f"the script {OUTCOMES[run.outcome]} before its first batch{said}"
    return Area("loaders", Mark.NOTE if run.outcome is Outcome.SLOW else Mark.BAD, text, text)


def _loaders(facts: Facts, findings: Sequence[Finding]) -> Area:
    """Bad if one of them failed as it is written, whether or not we know why."""
    trials = [facts.as_written(loader.number) for loader in facts.loaders]
    states = [_state(loader, trial, findings) for loader, trial in zip(facts.loaders, trials, strict=True)]
    is_bad = any(trial and trial.outcome not in (Outcome.OK, Outcome.SLOW) for trial in trials)
    mark = Mark.BAD if is_bad else _mark(finding for finding in findings if finding.loader is not None)
    return Area("loaders", mark, "; ".join(states), f"{len(facts.loaders)} found")


def _state(loader: Loader, trial: Trial | None, findings: Sequence[Finding]) -> str:
    where = f"{loader.built_at}, " if loader.built_at else ""
    how = f" {OUTCOMES[trial.outcome]}" if trial else ""
    causes = [each for each in findings if each.loader == loader.number and each.weight <= Weight.LIKELY]
    return f"{where}num_workers={loader.num_workers}{how}{_because(causes)}"


def _trials(trials: Sequence[Trial]) -> Area:
    """Good, whatever came of them: they are the measurement, and not what is measured."""
    engines = []
    for engine in dict.fromkeys(trial.engine for trial in trials):
        tried = {trial.workers: trial.outcome for trial in trials if trial.engine == engine}
        counts = (f"{workers} {OUTCOMES[outcome]}" for workers, outcome in sorted(tried.items()))
        engines.append(f"{engine} with {', '.join(counts)}")
    return Area("trials", Mark.GOOD, "; ".join(engines), str(len(trials)))


def _processes(processes: Sequence[ProcessPicture], findings: Sequence[Finding]) -> Area:
    roles = [process.role for process in processes]
    seen = [count_of(roles.count(role), role, many=MANY.get(role, "")) for role in dict.fromkeys(roles)]
    alive = [each for each in processes if each.role in LOOKED_INTO and each.state != "Z"]
    blind = [each for each in alive if each.why_no_stack]
    text = ", ".join(seen) + (f"; {len(blind)} without a stack: {_why_blind(blind[0])}" if blind else "")
    # Who sees nothing must not say that there is nothing.
    mark = Mark.BAD if len(blind) == len(alive) else _mark(findings)
    return Area("processes", mark, text, ", ".join(seen))


def _why_blind(process: ProcessPicture) -> str:
    return process.why_no_stack + (f"; to see it: {process.to_see_stack}" if process.to_see_stack else "")
