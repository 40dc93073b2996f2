"""The report as people read it: areas, findings with what, where, why and fix, what to do next. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from antifreeze.codes import named
from antifreeze.doctor.facts import Facts
from antifreeze.doctor.finding import Finding, Weight
from antifreeze.doctor.render.areas import Area, Mark, areas_of
from antifreeze.doctor.render.notes import Note, notes_of
from antifreeze.doctor.render.trials import trials_of
from antifreeze.doctor.render.words import command_of, count_of, filled, fixes, has_program, never_loaded, sureness

MARGIN = "  "
LABEL = 7
NOTE_LABEL = 13
# Where the weight of a finding stands, if its name leaves room.
COLUMN = 54
NARROWEST = 40
# In the first line of a finding; with -v all of it stands below.
LONGEST_EVIDENCE = 60
# So much of what the target wrote to stderr is shown.
LAST_LINES = 15

_COLOURS = {"bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "dim": "2"}
_OF_MARK = {Mark.GOOD: "green", Mark.NOTE: "yellow", Mark.BAD: "red"}
_OF_WEIGHT = {Weight.CERTAIN: "red", Weight.LIKELY: "yellow", Weight.POSSIBLE: "cyan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How the text is to look."""

    is_coloured: bool = False
    is_verbose: bool = False
    """Every area on its line, all evidence, and what the target said."""
    width: int | None = None
    """Columns that prose is wrapped to; None: it is not."""

    def paint(self, text: str, *colours: str) -> str:
        if not self.is_coloured or not text:
            return text
        return f"\x1b[{';'.join(_COLOURS[colour] for colour in colours)}m{text}\x1b[0m"


def as_text(facts: Facts, findings: Sequence[Finding], *, look: Look) -> str:
    blocks = ["\n".join(_areas(areas_of(facts, findings), look, is_machine=not has_program(facts)))]
    blocks += [as_block(finding, facts, look=look) for finding in findings]
    if notes := notes_of(facts, findings):
        blocks.append("\n".join(line for note in notes for line in _note(note, look)))
    if look.is_verbose and facts.trials:
        blocks.append("\n".join(_trials(facts, look)))
    if look.is_verbose or never_loaded(facts):
        blocks += _last_words(facts, look)
    blocks.append(_last_line(facts, findings, look))
    return "\n\n".join(blocks)


# --- areas


def _areas(areas: Sequence[Area], look: Look, *, is_machine: bool) -> Iterator[str]:
    """One line each; those where all is well share one, unless it is they that were asked for."""
    good = [area for area in areas if area.mark is Mark.GOOD]
    if look.is_verbose or is_machine or len(good) < 2:
        longest = max((len(area.name) for area in areas), default=0)
        yield from (_area(area.mark, area.name.ljust(longest), area.text, look) for area in areas)
        return
    others = [area for area in areas if area.mark is not Mark.GOOD]
    longest = max((len(area.name) for area in others), default=0)
    yield _area(Mark.GOOD, " · ".join(f"{area.name} {area.brief}" for area in good), "", look)
    yield from (_area(area.mark, area.name.ljust(longest), area.text, look) for area in others)


def _area(mark: Mark, name: str, text: str, look: Look) -> str:
    return f"[{look.paint(mark, _OF_MARK[mark])}] {name}  {text}".rstrip()


# --- findings


def as_block(finding: Finding, facts: Facts, *, look: Look) -> str:
    return "\n".join(_rows(finding, facts, look))


def _rows(finding: Finding, facts: Facts, look: Look) -> Iterator[str]:
    yield _head(finding, look)
    if finding.where is not None:
        yield f"{MARGIN}{look.paint(str(finding.where), 'bold')}   {finding.where.text}".rstrip()
    yield _row("what", finding.what, look)
    if place := _whereabouts(finding, facts):
        yield _row("where", place, look)
    yield _row("why", finding.why, look)
    for label, fix in zip(["fix", *["or"] * len(finding.fix)], fixes(finding, facts), strict=False):
        yield f"{MARGIN}{label:<{LABEL}}{look.paint(fix, 'green')}"
    if finding.rivals:
        yield _row("else", f"it may also be {' or '.join(named(code) for code in finding.rivals)}", look)
    if look.is_verbose:
        yield from (_row("seen", seen, look) for seen in finding.evidence)
    yield _row("next", filled(finding.decide or f"antifreeze explain {finding.code}", facts), look)


def _head(finding: Finding, look: Look) -> str:
    title = named(finding.code)
    evidence = f" ({_shortened(finding.evidence[0])})" if finding.evidence else ""
    gap = " " * max(2, COLUMN - len(title))
    return f"{look.paint(title, 'bold')}{gap}{look.paint(finding.weight.word, _OF_WEIGHT[finding.weight])}{evidence}"


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_EVIDENCE else f"{text[: LONGEST_EVIDENCE - 1]}…"


def _whereabouts(finding: Finding, facts: Facts) -> str:
    """What else is known of the place: function, loader, worker, sample."""
    loader = facts.loader(finding.loader)
    parts = [f"in {finding.where.function}" if finding.where and finding.where.function else ""]
    if loader is not None and loader.built_at is not None and loader.built_at != finding.where:
        parts.append(f"loader of {loader.built_at}")
    if finding.worker is not None:
        parts.append(f"worker {finding.worker}" + (f" (pid {finding.pid})" if finding.pid else ""))
    elif finding.pid:
        parts.append(f"pid {finding.pid}")
    parts.append(_sample(finding, facts))
    return ", ".join(filter(None, parts))


def _sample(finding: Finding, facts: Facts) -> str:
    """One of a subset by both its names."""
    if finding.sample is None:
        return ""
    known = (trial.originals for trial in facts.trials if trial.loader == finding.loader)
    original = next((each[finding.sample] for each in known if finding.sample in each), None)
    return f"sample {finding.sample}" + (f" of the subset, {original} of the whole dataset" if original else "")


def _row(label: str, text: str, look: Look) -> str:
    return _wrapped(f"{MARGIN}{label:<{LABEL}}", text, look, margin=len(MARGIN) + LABEL)


def _wrapped(beginning: str, text: str, look: Look, *, margin: int) -> str:
    """Prose to the width of the terminal; what follows the first line stands under it."""
    if look.width is None:
        return f"{beginning}{text}"
    width = max(look.width - margin, NARROWEST)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return beginning + f"\n{' ' * margin}".join(lines)


# --- the end


def _note(note: Note, look: Look) -> Iterator[str]:
    label = f"{note.kind:<{NOTE_LABEL}}"
    yield _wrapped(look.paint(label, "bold"), note.text, look, margin=NOTE_LABEL)
    yield from (f"{' ' * NOTE_LABEL}{line}" for line in note.lines)


def _trials(facts: Facts, look: Look) -> Iterator[str]:
    yield look.paint("trials", "bold")
    yield from (_wrapped(MARGIN, line, look, margin=2 * len(MARGIN)) for line in trials_of(facts))


def _last_words(facts: Facts, look: Look) -> list[str]:
    said = [facts.run.stderr if facts.run else "", *(trial.stderr for trial in facts.trials if trial.is_as_written)]
    lines = [line for text in said for line in text.splitlines() if line.strip()]
    if not lines:
        return []
    shown = lines[-LAST_LINES:]
    title = f"the last {count_of(len(shown), 'line')} that it wrote to stderr"
    return ["\n".join([look.paint(title, "bold"), *(f"{MARGIN}{line}" for line in shown)])]


def _last_line(facts: Facts, findings: Sequence[Finding], look: Look) -> str:
    counts = {word: count for word, count in sureness(findings).items() if count}
    if not counts:
        return f"{look.paint('nothing found', 'bold')}   {_next_look(facts)}"
    sure = ", ".join(f"{count} {word}" for word, count in counts.items())
    total = look.paint(count_of(len(findings), "finding"), "bold")
    return "   ".join(
        [f"{total} ({sure})", *_meanwhile(facts, findings[0]), f"read: antifreeze explain {findings[0].code}"]
    )


def _meanwhile(facts: Facts, finding: Finding) -> list[str]:
    """How to train until it is mended, if that is one of its fixes."""
    commands = [fix for fix in fixes(finding, facts) if fix.startswith("antifreeze run ")]
    if not commands or finding.weight is Weight.POSSIBLE or not has_program(facts):
        return []
    command, _, _ = commands[0].partition("   (")  # what it does, in words
    return [f"train meanwhile: {command}"]


def _next_look(facts: Facts) -> str:
    """What to ask when nothing was found."""
    if facts.processes:
        return f"see all stacks: antifreeze dump {facts.processes[0].pid}"
    if never_loaded(facts):
        return f"first let it come to its first batch: python {command_of(facts)}"
    if facts.run is not None:
        return "if it freezes later: antifreeze doctor PID, while it does"
    return f"{'try it' if facts.source else 'next'}: antifreeze doctor {command_of(facts)}"
