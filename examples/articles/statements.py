"""Every statement of both articles, what is true of it and what antifreeze does about it: the table in `docs/articles.md`.

They stand in `statements.toml`, in the order of the articles.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

ARTICLES = {
    "freezing": "Why does a PyTorch DataLoader freeze when using multiple workers?",
    "runtime_errors": "How do I resolve PyTorch runtime errors related to `num_workers`?",
}
BEGIN, END = "<!-- every statement -->", "<!-- end of the statements -->"
FILE = Path(__file__).resolve().parent / "statements.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Words of an article, and what we make of them."""

    says: str
    true: str
    antifreeze: str
    see: tuple[str, ...]
    """Commands that show it."""
    is_comment: bool = False
    """It stands in the code of an example."""


def read_statements(article: str) -> list[Statement]:
    return [
        Statement(
            says=plain["says"],
            true=plain["true"],
            antifreeze=plain["antifreeze"],
            see=tuple(plain["see"]),
            is_comment=plain.get("code", False),
        )
        for plain in tomllib.loads(FILE.read_text())[article]
    ]


def statements_table() -> list[str]:
    """Lines of Markdown, the marks around them included."""
    lines = [BEGIN, "", "## Every statement, and what is true", ""]
    lines += ["*–* is where a statement says nothing that could be true or false, or there is nothing to do about it."]
    for article, title in ARTICLES.items():
        lines += ["", f"### {title}", ""]
        lines += ["| | it says | what is true | what antifreeze does | see it |", "|--:|---|---|---|---|"]
        for number, each in enumerate(read_statements(article), start=1):
            says = f"“{each.says}”" + (" (a comment)" if each.is_comment else "")
            see = "<br>".join(f"`{command}`" for command in each.see) or "–"
            lines.append(f"| {article[0].upper()}{number} | {says} | {each.true} | {each.antifreeze} | {see} |")
    return [*lines, "", END]


def with_statements(page: str) -> str:
    """A page that was written earlier, with the statements as they are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + "\n".join(statements_table()) + after
