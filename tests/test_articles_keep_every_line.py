"""`examples/articles/` runs the articles' own code, every line of it, and answers every statement that they make."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "articles"))

from cells import EXAMPLES, Example
from page import CLAIMS
from statements import ARTICLES, read_statements, statements_table

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES_FOLDER = ROOT / "examples" / "articles"
ARTICLES_FOLDER = ROOT.parent / "shared" / "articles"
ARTICLE_FILES = {
    "freezing": "freezing-with-multiple-workers.md",
    "runtime_errors": "runtime-errors-with-num-workers.md",
}

every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
with_the_articles = pytest.mark.skipif(not ARTICLES_FOLDER.exists(), reason="the articles themselves are not here")


def kept_block(example: Example) -> str:
    return (EXAMPLES_FOLDER / "blocks" / f"{example.name}.txt").read_text()


def article_text(example: Example) -> str:
    prefix = next(prefix for prefix in ARTICLES if example.name.startswith(prefix))
    return (ARTICLES_FOLDER / ARTICLE_FILES[prefix]).read_text()


@every_example
def test_the_script_holds_the_block_as_it_is(example: Example) -> None:
    _, begin, rest = example.script.read_text().partition("# --- from the article ---\n")
    block, end, driver = rest.partition("# --- end ---\n")
    assert begin and end and driver
    assert block == kept_block(example)


@every_example
def test_the_script_outside_the_block_is_marked_as_ours(example: Example) -> None:
    text = example.script.read_text()
    before, after = text.split(kept_block(example))
    assert "# --- driver, not in the article: " in before
    assert "# --- driver, not in the article: " in after


def test_every_script_and_every_block_is_an_example() -> None:
    names = {example.name for example in EXAMPLES}
    assert {path.stem for path in EXAMPLES_FOLDER.glob("*_[0-9]_*.py")} == names
    assert {path.stem for path in (EXAMPLES_FOLDER / "blocks").iterdir()} == names


@with_the_articles
@pytest.mark.parametrize("prefix", ARTICLE_FILES)
def test_the_blocks_are_those_of_the_article(prefix: str) -> None:
    text = (ARTICLES_FOLDER / ARTICLE_FILES[prefix]).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert blocks == [kept_block(example) for example in EXAMPLES if example.name.startswith(prefix)]


@with_the_articles
@every_example
def test_the_page_quotes_the_article_word_for_word(example: Example) -> None:
    text = article_text(example).replace("*", "")
    for claim in CLAIMS[example.name]:
        assert claim.words in text


def parts(prefix: str) -> tuple[str, str]:
    """The prose of an article, without its headings, and the comments of its examples."""
    text = (ARTICLES_FOLDER / ARTICLE_FILES[prefix]).read_text()
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    comments = re.findall(r"# *(.*)", "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)))
    prose = re.sub(r"^```python\n.*?^```$|^\*\*[^*]*\*\*$", "", text, flags=re.DOTALL | re.MULTILINE)
    return prose.replace("*", ""), "\n".join(comments)


@with_the_articles
@pytest.mark.parametrize("prefix", ARTICLE_FILES)
def test_the_statements_together_are_the_whole_text_of_the_article(prefix: str) -> None:
    prose, comments = parts(prefix)
    for statement in read_statements(prefix):
        if statement.is_comment:
            assert statement.says in comments
        else:
            assert statement.says in prose, "not as the article has it, or not in its order"
            before, _, prose = prose.partition(statement.says)
            assert not before.strip(), "no statement answers this"
    assert not prose.strip()


@pytest.mark.parametrize("prefix", ARTICLE_FILES)
def test_every_statement_is_answered(prefix: str) -> None:
    for statement in read_statements(prefix):
        assert statement.true and statement.antifreeze
        is_answered = statement.true != "–"
        assert is_answered or not statement.see


def test_the_table_of_statements_is_the_one_in_the_page() -> None:
    assert "\n".join(statements_table()) in (ROOT / "docs" / "articles.md").read_text()
