"""What faulthandler writes, read back."""

from pathlib import Path

import pytest

from antifreeze.engine.supervise import stacks
from antifreeze.engine.supervise.stacks import Frame, Stack

PYTHON = "/usr/lib/python3.11"
OURS = str(Path(stacks.__file__).parents[2])
ASKED = f"""\
Thread 0x00007f9a869cf6c0 (most recent call first):
  File "{PYTHON}/threading.py", line 327 in wait
  File "{PYTHON}/threading.py", line 1002 in _bootstrap

Current thread 0x00007f9a87805b80 (most recent call first):
  File "{PYTHON}/site-packages/cv2/__init__.py", line 12 in imread
  File "/home/me/data set.py", line 41 in __getitem__
  File "{OURS}/engine/worker/fetch.py", line 60 in _fetch_each
  File "/home/me/train.py", line 9 in <module>
"""
CRASHED = f"""\
Fatal Python error: Segmentation fault

Thread 0x00007f9a869cf6c0 (most recent call first):
  File "{PYTHON}/threading.py", line 327 in wait

Current thread 0x00007f9a87805b80 (most recent call first):
  File "{PYTHON}/ctypes/__init__.py", line 519 in string_at
  File "/home/me/data.py", line 8 in \\xe9l\\u4e16\\U0001f600

Extension modules: numpy._core._multiarray_umath, numpy.linalg._umath_linalg (total: 2)
"""


def test_threads_and_frames_are_read_the_innermost_first() -> None:
    (stack,) = stacks.parse(ASKED)
    other, current = stack.threads
    assert stack.fatal is None
    assert (other.ident, other.is_current) == ("0x00007f9a869cf6c0", False)
    assert (current.ident, current.is_current) == ("0x00007f9a87805b80", True)
    assert other.frames == (
        Frame(f"{PYTHON}/threading.py", 327, "wait"),
        Frame(f"{PYTHON}/threading.py", 1002, "_bootstrap"),
    )
    assert [frame.function for frame in stack.frames] == ["imread", "__getitem__", "_fetch_each", "<module>"]


def test_the_most_telling_frame_is_the_innermost_of_the_users_own() -> None:
    (stack,) = stacks.parse(ASKED)
    assert stacks.most_telling(stack) == Frame("/home/me/data set.py", 41, "__getitem__")
    assert str(stacks.most_telling(stack)) == "/home/me/data set.py:41 in __getitem__"
    assert stacks.native_package(stack) == "cv2"


def test_a_crash_has_a_name_and_names_are_unescaped() -> None:
    (stack,) = stacks.parse(CRASHED)
    assert stack.fatal == "Segmentation fault"
    assert stacks.most_telling(stack) == Frame("/home/me/data.py", 8, "él世😀")
    assert stacks.native_package(stack) is None  # ctypes belongs to Python


def test_stacks_that_were_asked_for_and_a_crash_are_told_apart() -> None:
    text = ASKED + ASKED.replace("line 41", "line 42") + CRASHED
    first, second, crash = stacks.parse(text)
    assert (first.fatal, second.fatal, crash.fatal) == (None, None, "Segmentation fault")
    assert (first.frames[1].line, second.frames[1].line) == (41, 42)
    assert crash.frames[0].function == "string_at"


def test_where_nothing_was_written_there_is_nothing() -> None:
    assert stacks.parse("") == []
    nothing = Stack(None, ())
    assert nothing.frames == () and stacks.most_telling(nothing) is None and stacks.native_package(nothing) is None


@pytest.mark.parametrize("end", range(0, len(CRASHED), 7))
def test_text_that_breaks_off_anywhere_is_read_as_far_as_it_goes(end: int) -> None:
    for stack in stacks.parse(CRASHED[:end]):
        assert all(frame.function for frame in stack.frames)
        assert stacks.parse(CRASHED)[0].fatal.startswith(stack.fatal or "")  # type: ignore[union-attr]


def test_a_process_that_asked_only_for_its_own_thread_is_understood() -> None:
    (stack,) = stacks.parse('Stack (most recent call first):\n  File "/a.py", line ??? in f\n  ...\n')
    assert stack.frames == (Frame("/a.py", 0, "f"),)
    assert str(stack.frames[0]) == "/a.py in f"


def test_without_a_current_thread_the_main_thread_matters() -> None:
    text = ASKED.replace("Current thread", "Thread")
    assert stacks.parse(text)[0].frames[0].function == "imread"


def test_names_of_threads_and_native_frames_of_newer_pythons_are_read() -> None:
    (stack,) = stacks.parse(
        "Fatal Python error: Bus error\n\n"
        "Current thread 0x00007f9a87805b80 [pt data [0]] (most recent call first):\n"
        '  File "/home/me/data.py", line 8 in __getitem__\n\n'
        "Current thread's C stack trace (most recent call first):\n"
        '  Binary file "/lib/libc.so.6", at abort+0x12 [0x7f]\n'
        '  Binary file "/venv/lib/python3.14/site-packages/numpy.libs/libopenblas.so", at +0x12 [0x7f]\n'
        '  Binary file "/venv/lib/python3.14/site-packages/torch/lib/libtorch.so", at +0x12 [0x7f]\n'
    )
    assert stack.threads[0].name == "pt data [0]"
    assert len(stack.binaries) == 3
    assert stacks.native_package(stack) == "numpy"


@pytest.mark.parametrize(
    ("file", "is_user_code", "package"),
    [
        ("/home/me/train.py", True, None),
        ("relative.py", True, None),
        ("<string>", True, None),
        ("<stdin>", True, None),
        ("<ipython-input-3-abc>", True, None),
        ("/tmp/ipykernel_12/345.py", True, None),
        ("/home/me/torch/train.py", True, None),
        ("/home/me/antifreeze/train.py", True, None),
        ("<frozen importlib._bootstrap>", False, None),
        ("<__array_function__ internals>", False, None),
        ("/opt/conda/lib/python3.12/json/decoder.py", False, None),
        ("/usr/lib64/python3.13t/json/decoder.py", False, None),
        ("/usr/lib/python3/dist-packages/yaml/reader.py", False, "yaml"),
        ("/venv/lib/python3.11/site-packages/PIL/Image.py", False, "PIL"),
        ("/venv/lib/python3.11/site-packages/six.py", False, "six"),
        ("/venv/lib/python3.11/site-packages/_cffi.cpython-311-x86_64-linux-gnu.so", False, "_cffi"),
        ("/opt/pytorch/torch/utils/data/_utils/fetch.py", False, None),
        (f"{OURS}/engine/worker/main.py", False, None),
    ],
)
def test_user_code_is_told_from_libraries(file: str, is_user_code: bool, package: str | None) -> None:
    frame = Frame(file, 1, "f")
    assert (frame.is_user_code, frame.package) == (is_user_code, package)
