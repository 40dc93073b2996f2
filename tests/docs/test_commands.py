"""Every command that README and docs show can be typed: its options exist, and so do the files and targets it names."""

import importlib
import pkgutil
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from antifreeze import cli
from antifreeze.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
OPENS = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(antifreeze |make |(?:\S*/)?python (?!-[^m]))")
SHELLS = {"", "sh", "bash", "console"}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
# What stands for something of the reader's.
PLACEHOLDERS = {"PID": "4242", "FILE": "file", "CODE": "AF101", "SCRIPT": "train.py", "N": "1"}


def commands(text: str) -> Iterator[str]:
    """Of the shell blocks, and of what is quoted in a line."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if language in SHELLS:
            yield from (line for line in block.splitlines() if OPENS.match(line))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from (quoted for quoted in re.findall(r"`([^`\n]+)`", prose) if OPENS.match(quoted))


def words_of(command: str) -> list[str]:
    """Without prompt, comment and variables."""
    command = re.sub(r"\$\(which (\S+)\)", r"\1", command.removeprefix("$ "))
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command, comments=True)]
    while re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    return words


def complaint(command: str) -> str:
    """What is wrong with a command; nothing: it can be typed."""
    program, *words = words_of(command)
    if "…" in command or "..." in command:
        return ""
    if program == "antifreeze":
        return complaint_of_parser(words)
    if program == "make":
        lacking = [word for word in words if "=" not in word and word not in TARGETS]
        return f"no target {lacking}" if lacking else ""
    if words[:2] == ["-m", "antifreeze"]:
        return complaint_of_parser(words[2:])
    if words[0] == "-m" and find_spec(words[1].partition(".")[0]) is not None:
        return ""
    script = words[0]
    is_there = (ROOT / script).exists() or script == "train.py"
    return "" if is_there else f"there is no {script}"


def complaint_of_parser(words: list[str]) -> str:
    """Text may leave out the script: `antifreeze run --fix rng`."""
    return "" if is_parsed(words) or is_parsed([*words, "train.py"]) else f"the parser refuses {words}"


def is_parsed(words: list[str]) -> bool:
    try:
        main(words)
    except SystemExit as ended:  # --help and --version end, too
        return ended.code == 0
    return True


@pytest.fixture(autouse=True)
def _nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real parser, and then nothing."""
    for found in pkgutil.iter_modules(cli.__path__):
        module = importlib.import_module(f"antifreeze.cli.{found.name}")
        if hasattr(module, "execute"):
            monkeypatch.setattr(module, "execute", lambda _: 0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_can_be_typed(page: Path) -> None:
    wrong = {command: complaint(command) for command in commands(page.read_text())}
    assert not {command: why for command, why in wrong.items() if why}


@pytest.mark.parametrize(
    "command",
    [
        "antifreeze run --retries 2 train.py",
        "antifreeze cure train.py",
        "make healthy",
        "python examples/articles/no_such.py",
    ],
)
def test_a_command_that_cannot_be_typed_is_noticed(command: str) -> None:
    assert complaint(command)


def test_commands_are_found_in_blocks_and_in_lines() -> None:
    text = (
        "Put `antifreeze` before it:\n\n```\nantifreeze run train.py  # so\npython\n```\n\n```python\nmake = 1\n```\n"
    )
    assert list(commands(text)) == ["antifreeze run train.py  # so"]
    assert [*commands("say `make zoo` or `antifreeze demo now`")] == ["make zoo", "antifreeze demo now"]
