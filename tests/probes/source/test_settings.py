"""Start methods, threads, the main guard."""

import pytest

from .conftest import HEAD, Read


@pytest.mark.parametrize(
    "text",
    [
        "mp.get_start_method()\nmp.set_start_method('spawn')",
        "mp.set_start_method('fork')\nmp.set_start_method('spawn')",
        "if mp.get_start_method() != 'spawn':\n    mp.set_start_method('spawn')",
        "import torch.multiprocessing as tmp\nprint(tmp.get_start_method())\ntmp.set_start_method('spawn')",
    ],
)
def test_a_start_method_that_is_set_too_late_is_seen(read: Read, text: str) -> None:
    (clash,) = read(HEAD + text).start_method_clashes
    assert clash.settled.line < clash.set_again.line


@pytest.mark.parametrize(
    "text",
    [
        "mp.set_start_method('spawn')",
        "mp.set_start_method('spawn')\nmp.get_start_method()",
        "mp.get_start_method()\nmp.set_start_method('spawn', force=True)",
        "mp.get_start_method(allow_none=True)\nmp.set_start_method('spawn')",
        "mp.get_start_method()\ntry:\n    mp.set_start_method('spawn')\nexcept RuntimeError:\n    pass",
        "if cuda:\n    mp.set_start_method('spawn')\nelse:\n    mp.set_start_method('fork')",
        "if cuda:\n    mp.set_start_method('spawn')\nmp.set_start_method('fork') if not cuda else None",
        "def f():\n    mp.get_start_method()\nmp.set_start_method('spawn')",
    ],
)
def test_one_that_is_set_in_time_is_fine(read: Read, text: str) -> None:
    assert read(HEAD + text).start_method_clashes == ()


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("mp.set_start_method('spawn', force=True)", "spawn"),
        ("from torch.multiprocessing import set_start_method\nset_start_method('spawn')", "spawn"),
        ("mp.set_start_method(args.method)", None),
        ("mp.set_start_method('spawn')\nmp.set_start_method('fork', force=True)", None),
        ("", None),
    ],
)
def test_the_start_method_is_told_if_it_is_one(read: Read, text: str, method: str | None) -> None:
    assert read(HEAD + text).start_method == method


def test_thread_settings_are_told(read: Read) -> None:
    source = read(
        "import cv2\nimport torch\ncv2.setNumThreads(0)\ntorch.set_num_threads(4)\nprint(torch.get_num_threads())"
    )
    assert [place.text for place in source.thread_settings] == ["cv2.setNumThreads(0)", "torch.set_num_threads(4)"]


@pytest.mark.parametrize(
    ("text", "has_one"),
    [
        ("if __name__ == '__main__':\n    main()", True),
        ('if "__main__" == __name__:\n    main()', True),
        ("if __name__ != '__main__':\n    main()", False),
        ("main()", False),
    ],
)
def test_the_main_guard_is_known(read: Read, text: str, has_one: bool) -> None:
    assert read(text).has_main_guard is has_one
