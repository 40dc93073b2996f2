"""Which files are read: the script, and what it imports of the user's."""

from pathlib import Path

import pytest

from antifreeze.probes.source import files, read_source

from .conftest import Read


def test_modules_beside_the_script_and_in_packages_below_are_read(read: Read) -> None:
    source = read(
        "import data\nfrom lib.sets import images\nimport os, torch",
        {"data": "from lib import other", "lib.__init__": "", "lib.sets.images": "from . import near", "lib.other": "",
         "lib.sets.near": "", "unused": ""},
    )  # fmt: skip
    assert set(source.files) == {
        "train.py",
        "data.py",
        "lib/__init__.py",
        "lib/sets/images.py",
        "lib/other.py",
        "lib/sets/near.py",
    }


def test_the_script_of_a_package_imports_by_the_name_of_the_package(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "data.py").touch()
    (package / "train.py").write_text("from pkg.data import x\nfrom . import data")
    assert set(read_source(package / "train.py").files) == {"train.py", "data.py", "__init__.py"}


def test_what_is_installed_is_not_read(read: Read, tmp_path: Path) -> None:
    assert read("import torch, numpy.random, os.path").files == ("train.py",)
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "train.py").write_text("import data")
    (installed / "data.py").touch()
    assert read_source(installed / "train.py").files == ("train.py",)


def test_a_file_that_cannot_be_parsed_is_named_with_the_reason(read: Read) -> None:
    source = read("import broken", {"broken": "def ("})
    assert source.files == ("train.py",)
    assert source.unreadable["broken.py"].startswith("SyntaxError")


def test_a_script_that_cannot_be_parsed_leaves_no_facts_but_the_reason(read: Read) -> None:
    source = read("for x in")
    assert source.files == ()
    assert "SyntaxError" in source.unreadable["train.py"]


def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "FileNotFoundError" in read_source(tmp_path / "train.py").unreadable["train.py"]


def test_a_file_of_several_megabytes_is_not_read(read: Read) -> None:
    source = read("import big", {"big": "x = 1\n" + "#" * files.MOST_BYTES})
    assert "2 MB" in source.unreadable["big.py"]


def test_no_more_files_are_read_than_a_program_has(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 5)
    names = [f"m{number}" for number in range(20)]
    assert len(read("import " + ", ".join(names), dict.fromkeys(names, "")).files) == 5


def test_a_file_in_another_encoding_is_read(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes("# coding: latin-1\nx = 'é'\n".encode("latin-1"))
    assert read_source(script).unreadable == {}


def test_more_files_are_read_and_shown_in_full_if_they_are_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "train.py").touch()
    (tmp_path / "data.py").touch()
    source = read_source(tmp_path / "here" / "train.py", [tmp_path / "data.py"])
    assert source.files == ("train.py", str(tmp_path / "data.py"))
