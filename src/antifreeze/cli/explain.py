"""`antifreeze explain AF101`: what a check's own docstring says, for people or as JSON."""

from __future__ import annotations

import argparse
import sys
import textwrap

from antifreeze.cli.terminal import PLAIN_WIDTH, put, wants_colour, width_of
from antifreeze.codes import NAMES
from antifreeze.doctor.pages import Page, code_of, read_page
from antifreeze.errors import ConfigError

WIDEST = 110
LABEL = 14
SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("codes", metavar="CODE", nargs="*", help="a code, or the name of a problem: AF101")
    parser.add_argument("--all", action="store_true", help="all codes, each with its name and one sentence")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def execute(arguments: argparse.Namespace) -> int:
    codes = list(NAMES) if arguments.all else [meant_by(word) for word in arguments.codes]
    if not codes:
        raise ConfigError("explain needs a code", try_="antifreeze explain AF101, or antifreeze explain --all")
    pages = [read_page(code) for code in codes]
    if arguments.format == "json":
        put(as_json(pages), to=sys.stdout)
    elif arguments.all:
        put("\n".join(as_row(page) for page in pages), to=sys.stdout)
    else:
        is_coloured = wants_colour(sys.stdout)
        width = min(width_of(sys.stdout) or PLAIN_WIDTH, WIDEST)
        put("\n\n\n".join(as_text(page, width=width, is_coloured=is_coloured) for page in pages), to=sys.stdout)
    return 0


def meant_by(word: str) -> str:
    code = code_of(word)
    if code is not None:
        return code
    from difflib import get_close_matches

    known = {each.lower(): code for code, name in NAMES.items() for each in (code, name)}
    near = dict.fromkeys(known[each] for each in get_close_matches(word.lower(), known, n=3, cutoff=0.5))
    raise ConfigError(
        f"there is no code {word}",
        why=f"near it are {', '.join(f'{code} {NAMES[code]}' for code in near)}" if near else None,
        try_="antifreeze explain --all",
    )


def as_text(page: Page, *, width: int, is_coloured: bool) -> str:
    head = f"{page.code} {page.name}"
    shown = f"\x1b[1m{head}\x1b[0m" if is_coloured else head
    blocks = [f"{shown}{page.family:>{max(width - len(head), len(page.family) + 2)}}"]
    blocks.append(textwrap.fill(page.summary, width))
    for title, text in page.sections.items():
        blocks.append(_section(title, text, width=width, is_coloured=is_coloured))
    return "\n\n".join(blocks)


def _section(title: str, text: str, *, width: int, is_coloured: bool) -> str:
    """Paragraphs beside their title; what can be pasted or clicked is not broken."""
    margin = " " * LABEL
    paragraphs = [
        textwrap.fill(
            " ".join(paragraph.split()),
            width,
            initial_indent=margin,
            subsequent_indent=margin,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for paragraph in text.split("\n\n")
    ]
    label = f"\x1b[1m{title}\x1b[0m" if is_coloured else title
    return f"{label}{' ' * (LABEL - len(title))}" + "\n\n".join(paragraphs).removeprefix(margin)


def as_row(page: Page) -> str:
    longest = max(len(name) for name in NAMES.values())
    return f"{page.code}  {page.name:<{longest}}  {page.summary}"


def as_json(pages: list[Page]) -> str:
    import json

    plain = [
        {
            "schema": SCHEMA,
            "code": page.code,
            "name": page.name,
            "family": page.family,
            "summary": page.summary,
            "sections": page.sections,
        }
        for page in pages
    ]
    return json.dumps(plain if len(plain) != 1 else plain[0], indent=2, ensure_ascii=False)
