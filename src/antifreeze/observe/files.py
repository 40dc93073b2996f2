"""Where our files go, when something went wrong or somebody asked: a folder for each process, made at first need.

`$ANTIFREEZE_DIR`, else `$XDG_STATE_HOME/antifreeze`, else `~/.local/state/antifreeze`; for the user alone (mode 0700). The
folders of the newest runs are kept. Nothing here raises: where no file can be written, that is said once.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from antifreeze.observe.say import say_once

MOST_RUNS = 20
# In one folder: a loader that stalls every minute for a week must not fill the disk.
MOST_FILES = 100
# The folder of a process that lives is spared for so long. Not longer: in containers the same pids come back every time.
SPARED_S = 3600.0
_NAME = re.compile(r"\d{4}-\d{6}-(?P<pid>\d+)", re.ASCII)

_made: tuple[int, Path, Path] | None = None
"""The pid that made the folder, the folder above, and the folder."""


def run_folder() -> Path | None:
    """The folder of this process; None where it cannot be made, which is said once."""
    global _made
    try:
        above = _state_folder()
        if _made is None or _made[:2] != (os.getpid(), above) or not _made[2].is_dir():
            folder = above / f"{time.strftime('%m%d-%H%M%S')}-{os.getpid()}"
            _refuse_if_foreign(above)
            _make_own(folder)
            _made = os.getpid(), above, folder
            _remove_old(above, spare=folder)
        return _made[2]
    except (
        OSError,
        RuntimeError,
        ValueError,
    ) as error:  # RuntimeError: there is no home; ValueError: no such path can be
        say_once(f"there is no folder for files of this run: {error} (ANTIFREEZE_DIR=… names another place)")
        return None


def write_stacks(name: str, text: str) -> Path | None:
    """Write a file such as `stall-1.txt` into this run's folder, under another number if there is one already."""
    folder = run_folder()
    if folder is None:
        return None
    try:
        if len(os.listdir(folder)) >= MOST_FILES:
            say_once(f"{folder} holds {MOST_FILES} files; no more are written there")
            return None
        path, fd = _create(folder / name)
        with open(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        return path
    except OSError as error:
        say_once(f"no stacks can be written to {folder}: {error.strerror}")
        return None


def cache_folder() -> Path:
    """The folder for what can be found out again, made if it is missing; raises OSError where there can be none.

    `$XDG_CACHE_HOME/antifreeze`, else `~/.cache/antifreeze`.
    """
    try:
        named = os.environ.get("XDG_CACHE_HOME", "")
        folder = (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "antifreeze"
        _refuse_if_foreign(folder)
        _make_own(folder)
    except (RuntimeError, ValueError) as error:  # there is no home; no such path can be
        raise FileNotFoundError(errno.ENOENT, str(error)) from error
    return folder


def replace_file(path: Path, text: str) -> None:
    """Write a file so that whoever reads it meanwhile gets all of the old text or all of the new one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(text)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _state_folder() -> Path:
    named = os.environ.get("ANTIFREEZE_DIR")
    if named:
        return Path(named).expanduser().absolute()
    state = os.environ.get("XDG_STATE_HOME", "")
    # Relative paths in XDG variables are to be ignored, says their specification.
    return (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "antifreeze"


def _refuse_if_foreign(above: Path) -> None:
    """Raise if somebody else, apart from root, could put other files in the place of ours."""
    if not above.is_dir():
        return  # it is made, or that fails
    found = above.stat()
    if found.st_uid not in (os.geteuid(), 0):
        raise PermissionError(errno.EPERM, f"it belongs to another user (uid {found.st_uid})", str(above))
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, "every user may rename what is in it (chmod +t, or o-w)", str(above))


def _make_own(folder: Path) -> None:
    """Make a folder for the user alone, and those above it that are missing; one that exists must be the user's."""
    if not folder.parent.is_dir():
        _make_own(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:  # of this process before an exec, or by another thread
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise


def _create(path: Path) -> tuple[Path, int]:
    """Open a new file with this name, or with a number after it."""
    for number in range(1, MOST_FILES + 2):
        free = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        try:
            return free, os.open(free, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
    raise FileExistsError(errno.EEXIST, f"there are too many files called {path.name}")


def _remove_old(above: Path, *, spare: Path) -> None:
    """Remove the folders of all but the newest runs: only what bears our kind of name, is ours, and no link."""
    runs = sorted(_runs(above), key=lambda run: run[0], reverse=True)
    others = [(changed_s, folder) for changed_s, folder in runs if folder != spare]
    for changed_s, folder in others[MOST_RUNS - 1 :]:
        if time.time() - changed_s > SPARED_S or not _is_of_a_living_process(folder):
            shutil.rmtree(folder, ignore_errors=True)  # follows no link


def _runs(above: Path) -> Iterator[tuple[float, Path]]:
    """Every run's folder, with the time of its last change: their names do not tell the year."""
    with os.scandir(above) as entries:
        for entry in entries:
            if not _NAME.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # another run has removed it
                continue
            if found.st_uid == os.geteuid():
                yield found.st_mtime, Path(entry.path)


def _is_of_a_living_process(folder: Path) -> bool:
    match = _NAME.fullmatch(folder.name)
    pid = int(match["pid"]) if match else 0
    if pid == os.getpid():
        return False  # a folder of ours from before, or of somebody who had our number
    try:
        os.getpgid(pid)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is there, and not for us to ask
        return True
    return True
