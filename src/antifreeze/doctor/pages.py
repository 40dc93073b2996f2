"""A check's own docstring, taken apart: the page that users read about a problem. Pure.

It is read from the source rather than from the module, as to import all checks takes longer than a command line may take.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from antifreeze.codes import NAMES

FAMILIES = {
    "AF1": "freezes",
    "AF2": "memory and descriptors",
    "AF3": "data errors, dead workers, pickling",
    "AF4": "speed",
    "AF5": "randomness and duplicates",
    "AF6": "distributed",
    "AF9": "the machine",
}
TITLES = ("What happens", "How we know", "What to do", "Looks like", "Read on")


@dataclass(frozen=True, slots=True)
class Page:
    """What is known about one problem."""

    code: str
    name: str
    summary: str
    """The problem in one sentence."""
    sections: dict[str, str]
    """What follows, by its title; paragraphs are parted by an empty line."""

    @property
    def family(self) -> str:
        return FAMILIES[self.code[:3]]


def file_of(code: str) -> str:
    """The file of a check, in `checks/`: it is called like the problem."""
    return f"{NAMES[code].replace('-', '_')}.py"


def read_page(code: str) -> Page:
    source = (Path(__file__).parent / "checks" / file_of(code)).read_text(encoding="utf-8")
    return page_of(code, source)


def page_of(code: str, source: str) -> Page:
    """The page that a check's source begins with."""
    text = ast.get_docstring(ast.parse(source)) or ""
    summary, *paragraphs = text.split("\n\n")
    sections: dict[str, str] = {}
    title = TITLES[0]
    for paragraph in paragraphs:
        first, _, rest = paragraph.partition(":")
        if first in TITLES:
            title = first
            sections[title] = rest.strip()
        else:
            sections[title] = f"{sections.get(title, '')}\n\n{paragraph}".strip()
    return Page(code, NAMES[code], " ".join(summary.split()), sections)


def code_of(word: str) -> str | None:
    """The code that is meant by a code or by the name of a problem, in whatever case; None: there is none."""
    by_name = {name: code for code, name in NAMES.items()}
    code = word.upper()
    return code if code in NAMES else by_name.get(word.lower().replace("_", "-"))
