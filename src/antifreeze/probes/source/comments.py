"""`# antifreeze: ignore[AF204, AF301]`: what the user asks us not to tell, by line."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from antifreeze.probes.source.files import File

_IGNORE = re.compile(r"#\s*antifreeze:\s*ignore\b(?:\s*\[([^\]]*)\])?")
ALL = "*"
_BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def ignored_codes(file: File) -> dict[str, tuple[str, ...]]:
    """`file:line` → codes; a comment counts for its own line and for the first one of its statement."""
    if "antifreeze:" not in file.text:
        return {}
    return {f"{file.shown}:{line}": codes for line, codes in _by_line(file.text)}


def _by_line(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    first = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            first = None
        elif token.type == tokenize.COMMENT and (found := _IGNORE.search(token.string)):
            yield from ((line, _codes(found[1])) for line in {first or token.start[0], token.start[0]})
        elif first is None and token.type not in _BLANK:
            first = token.start[0]


def _codes(listed: str | None) -> tuple[str, ...]:
    named = [code.strip() for code in (listed or "").split(",")]
    return tuple(filter(None, named)) or (ALL,)
