"""Writes `docs/checks/`: a page for each check, from its docstring and its own example, and an index of all.

And the table of options in the README, from the one in `antifreeze/options.py`, and the table of codes in
`antifreeze/codes.py`, from the checks.

python docs/generate.py            write them
python docs/generate.py --check    exit status 1 if they are not as they would be written; what `make check` asks
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from antifreeze import codes
from antifreeze.codes import NAMES
from antifreeze.doctor.check import Check
from antifreeze.doctor.checks import CHECKS
from antifreeze.doctor.diagnosis import diagnose
from antifreeze.doctor.pages import FAMILIES, Page, read_page
from antifreeze.doctor.render.text import Look, as_block
from antifreeze.options import OPTIONS

FOLDER = Path(__file__).parent / "checks"
README = Path(__file__).parents[1] / "README.md"
OPTIONS_BEGIN, OPTIONS_END = (
    "<!-- options: written by `make docs` from src/antifreeze/options.py -->\n",
    "<!-- end of options -->\n",
)
CODES = Path(codes.__file__)
CODES_BEGIN, CODES_END = "NAMES = {\n", "}\n"
INDEX = "README.md"
LOOK = Look(is_verbose=True)
INTRODUCTION = """\
What [`antifreeze doctor`](../doctor.md) looks for; the engine's errors and reports carry the same codes. Each page is the
check's own docstring, which `antifreeze explain CODE` prints as well, and what it says about its own example."""


def main(words: list[str]) -> int:
    NAMES.update({check.code: check.name for check in CHECKS})  # as the table in codes.py does not have a new one yet
    pages = dict(all_pages())
    tables = {path: path.read_text(encoding="utf-8") for path in (README, CODES)}
    written = {README: with_options(tables[README]), CODES: with_codes(tables[CODES])}
    if "--check" in words:
        stale = [f"docs/checks/{name}" for name in differing(pages)]
        stale += [path.name for path in tables if tables[path] != written[path]]
        for name in stale:
            sys.stderr.write(f"{name} is not as it would be written now; run: make docs\n")
        return int(bool(stale))
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    FOLDER.mkdir(exist_ok=True)
    for name in differing(pages):
        if name in pages:
            (FOLDER / name).write_text(pages[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    return 0


def with_options(text: str) -> str:
    """The README with the table of options as it is now."""
    return between(text, OPTIONS_BEGIN, OPTIONS_END, option_rows())


def with_codes(text: str) -> str:
    """`codes.py` with the code and the name of every check."""
    return between(text, CODES_BEGIN, CODES_END, (f'    "{check.code}": "{check.name}",' for check in CHECKS))


def between(text: str, begin: str, end: str, lines: Iterable[str]) -> str:
    """This text with these lines in the place of those between its marks."""
    head, _, rest = text.partition(begin)
    return head + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2]


def option_rows() -> Iterator[str]:
    yield "| argument of `DataLoader` | `antifreeze run` | variable | effect |"
    yield "|---|---|---|---|"
    for option in OPTIONS:
        is_negative = (option.flag or "").startswith("--no-")
        argument = f"{option.argument}={'False' if is_negative else ''}" if option.argument else ""
        variable = f"{option.variable}{'=0' if is_negative else ''}" if option.variable else ""
        flag = f"{option.flag} {option.metavar or ''}".strip() if option.flag else ""
        cells = (f"`{cell}`" if cell else "" for cell in (argument, flag, variable))
        yield f"| {' | '.join(cells)} | {option.help} |".replace("|  |", "| |")


def differing(pages: dict[str, str]) -> list[str]:
    """Pages that are missing, outdated, or of no check."""
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    return sorted(name for name in {*pages, *there} if pages.get(name) != there.get(name))


def all_pages() -> Iterator[tuple[str, str]]:
    pages = [read_page(check.code) for check in CHECKS]
    yield INDEX, index(pages)
    for check, page in zip(CHECKS, pages, strict=True):
        yield file_name(page), as_markdown(page, check)


def file_name(page: Page) -> str:
    return f"{page.code}-{page.name}.md"


def as_markdown(page: Page, check: Check) -> str:
    found = [finding for finding in diagnose(check.sick) if finding.code == check.code]
    blocks = [f"# {page.code} {page.name}", linked(page.summary)]
    blocks += [f"**{title}:** {linked(text)}" for title, text in page.sections.items()]
    blocks += ["**What the doctor says:**", *(fenced(as_block(each, check.sick, look=LOOK)) for each in found)]
    blocks.append(f"[All checks]({INDEX}) · `antifreeze explain {page.code}`")
    return "\n\n".join(blocks) + "\n"


def linked(text: str) -> str:
    """With each code of another page leading to it; not in quotes, which are to be read as they stand."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else re.sub(r"AF\d{3}", link, piece) for piece in pieces)


def link(code: re.Match[str]) -> str:
    return f"[{code[0]}]({code[0]}-{NAMES[code[0]]}.md)"


def fenced(text: str) -> str:
    return f"```\n{text}\n```"


def index(pages: list[Page]) -> str:
    blocks = ["# All checks", INTRODUCTION]
    for prefix, family in FAMILIES.items():
        rows = [page for page in pages if page.code.startswith(prefix)]
        if rows:
            table = [f"| [{page.code}]({file_name(page)}) | {page.name} | {page.summary} |" for page in rows]
            blocks += [f"## {prefix}: {family}", "\n".join(["| code | name | |", "|---|---|---|", *table])]
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
