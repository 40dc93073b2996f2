"""The wheel, installed into an empty environment that has what the wheel itself asks for, and nothing else."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 200

EPOCH = """
import antifreeze
from antifreeze import DataLoader

loader = DataLoader(range(8), batch_size=2, num_workers=2)
print([batch.tolist() for batch in loader], antifreeze.__file__)
"""


def run(*command: str | Path, **variables: str) -> str:
    """Run a program that has nothing of this environment; returns what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ANTIFREEZE"))}
    ended = subprocess.run(
        [str(word) for word in command],
        cwd="/",
        env=kept | variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, f"{command} ended with {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def required(packages: Path) -> Iterator[metadata.Distribution]:
    """The distributions that antifreeze in that folder needs, and those that they need, as they are installed here."""
    [ours] = metadata.distributions(path=[str(packages)])
    waiting, seen = list(ours.requires or ()), set[str]()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed here")
        assert requirement.specifier.contains(found.version, prereleases=True), (
            f"{requirement}: {found.version} is here"
        )
        yield found
        waiting += found.requires or ()


def lend(distribution: metadata.Distribution, *, packages: Path, programs: Path) -> None:
    """Link a distribution into another environment."""
    for file in distribution.files or ():
        place = Path(str(distribution.locate_file(file))).resolve()
        if file.parts[0] == ".." and place.parent.name == "bin":
            link, target = programs / place.name, place
        elif file.parts[0] not in ("..", "__pycache__"):
            link, target = packages / file.parts[0], Path(str(distribution.locate_file(file.parts[0])))
        else:
            continue
        if not link.exists():
            link.symlink_to(target)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of the environment."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # building writes into the tree
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    try:
        run(*pip, "--version")
    except AssertionError:
        pytest.skip("there is no pip here")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, source)
    [wheel] = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "environment")
    programs = folder / "environment" / "bin"
    run(*pip, "--python", programs / "python", "install", "--no-deps", "--no-index", wheel)
    where = run(programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    packages = Path(where.strip())
    for distribution in list(required(packages)):
        lend(distribution, packages=packages, programs=programs)
    return programs


@pytest.mark.long
@pytest.mark.deadline(900)
def test_a_wheel_works_with_what_it_asks_for(programs: Path, tmp_path: Path) -> None:
    from antifreeze import __version__

    assert run(programs / "antifreeze", "--version").split()[-1] == __version__
    script = tmp_path / "epoch.py"
    script.write_text(EPOCH)
    printed = run(programs / "python", script, ANTIFREEZE="require", XDG_CACHE_HOME=str(tmp_path / "cache"))
    batches, _, file = printed.strip().rpartition(" ")
    assert batches == "[[0, 1], [2, 3], [4, 5], [6, 7]]"
    assert Path(file).is_relative_to(programs.parent)
    assert "now yours: antifreeze run" in run(programs / "antifreeze", "demo", XDG_CACHE_HOME=str(tmp_path / "cache"))
