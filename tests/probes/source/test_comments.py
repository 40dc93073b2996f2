"""Comments that ask us to be silent."""

from .conftest import Read


def test_codes_are_ignored_where_a_comment_says_so(read: Read) -> None:
    source = read(
        """
        x = 1  # antifreeze: ignore[AF204, AF301]
        y = 2  # antifreeze: ignore
        z = "# antifreeze: ignore"
        w = 3  # an antifreeze: ignored word
        """
    )
    assert source.ignored == {"train.py:2": ("AF204", "AF301"), "train.py:3": ("*",)}


def test_a_comment_inside_a_statement_counts_for_its_first_line_too(read: Read) -> None:
    source = read("loader = make(\n    1,  # antifreeze: ignore[AF404]\n)\nother = 1")
    assert source.ignored == {"train.py:1": ("AF404",), "train.py:2": ("AF404",)}
