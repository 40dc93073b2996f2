"""The table of declared differences in docs/differential.md, from declared.py."""

from __future__ import annotations

import sys

from differential.declared import DECLARED
from differential.engines import ROOT

PAGE = ROOT / "docs" / "differential.md"
BEGIN, END = "<!-- declared differences -->\n", "<!-- end -->\n"


def table() -> str:
    """The table, as Markdown."""
    rows = [f"| {each.name} | {each.torch_does} | {each.we_do} | {each.why} |" for each in DECLARED]
    return "\n".join(["| | with torch | with antifreeze | why |", "|---|---|---|---|", *rows]) + "\n"


def main(*, check: bool) -> int:
    """Write the table, or say whether it is as it would be written."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    made = before + BEGIN + table() + END + rest.split(END)[1]
    if check:
        if made != text:
            sys.stderr.write("docs/differential.md is not what declared.py says; run: python -m differential --page\n")
        return int(made != text)
    PAGE.write_text(made, encoding="utf-8")
    return 0
