"""Whose code a file is, and how facts name its lines."""

import sysconfig
from pathlib import Path

import antifreeze
from antifreeze.engine.supervise.stacks import Frame
from antifreeze.probes.places import MOST_FRAMES, PlaceMaker

LIBRARY = sysconfig.get_path("purelib")


def frame(file: str, line: int = 1) -> Frame:
    return Frame(file, line, "f")


def test_a_file_of_the_user_is_named_from_the_directory_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "data.py").write_text("first\n  second = 2\n")
    place = PlaceMaker(base=str(tmp_path), cwd="/").place(str(tmp_path / "parts" / "data.py"), 2, "f")
    assert (str(place), place.text) == ("parts/data.py:2", "second = 2")


def test_a_relative_name_is_meant_from_where_the_program_was_started(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    places = PlaceMaker(base=str(tmp_path), cwd=str(tmp_path))
    assert str(places.place("train.py", 3)) == "train.py:3"
    assert places.is_users("train.py")


def test_libraries_our_own_code_and_what_is_no_file_are_not_the_users(tmp_path: Path) -> None:
    places = PlaceMaker(base=str(tmp_path), cwd=str(tmp_path))
    ours = str(Path(antifreeze.__file__).with_name("errors.py"))
    for file in (f"{LIBRARY}/torch/__init__.py", ours, "<string>", "<frozen runpy>", "numpy/random/mtrand.pyx"):
        assert not places.is_users(file), file


def test_the_innermost_line_of_the_user_is_told_even_if_it_is_far_up(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    stack = [frame(f"{LIBRARY}/deep.py", line) for line in range(2 * MOST_FRAMES)] + [frame(str(script), 7)]
    frames, place = PlaceMaker(base=str(tmp_path), cwd="/").of_frames(stack)
    assert str(place) == "train.py:7"
    assert len(frames) == MOST_FRAMES and frames[-1] == place


def test_our_own_frames_are_not_shown(tmp_path: Path) -> None:
    ours = str(Path(antifreeze.__file__).with_name("errors.py"))
    frames, place = PlaceMaker(base=str(tmp_path), cwd="/").of_frames([frame(ours), frame(f"{LIBRARY}/torch/x.py")])
    assert [Path(each.file).name for each in frames] == ["x.py"]
    assert place is None
