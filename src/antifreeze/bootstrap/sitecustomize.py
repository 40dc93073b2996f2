"""Runs at the start of every Python process below `antifreeze run`, which puts this directory on PYTHONPATH.

So does `antifreeze doctor`: below it, the program is examined on torch's own loader, and does not get the engine.

It leaves the process as it would have been without us: the user's own `sitecustomize` runs, and this directory is not on
`sys.path`. PYTHONPATH stays as it is, so that processes started from here (torchrun, Lightning's ranks) get the engine
too. A fault of ours is one line on stderr.

Any Python may find this file on its path, also an old one without antifreeze or torch; so it is plain Python 3, and all
that it imports by itself is `os` and `sys`.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def leave_the_path() -> None:
    sys.path[:] = [entry for entry in sys.path if entry != HERE]


def run_the_users_own() -> None:
    """Import the `sitecustomize` that Python would have found without us, under its own name, if there is one."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:  # the import system looks for the module that it is importing
            sys.modules.setdefault("sitecustomize", ours)


def install_the_engine() -> None:
    # The words of `settings.mode` for off: whoever switches us off wants nothing of ours to run.
    if os.environ.get("ANTIFREEZE") in ("0", "off"):
        return
    try:
        from antifreeze.install import install_when_imported

        install_when_imported()
    except Exception as fault:  # the user's program matters more than we do
        if has_torch():
            reason = " ".join(str(fault).split())
            sys.stderr.write(f"antifreeze: not active in {sys.executable}: {type(fault).__name__}: {reason}\n")


def install_the_examiner() -> None:
    """The doctor has started this program: it is watched, and its loaders stay torch's own."""
    try:
        from antifreeze.probes.target import examine_when_imported

        examine_when_imported()
    except Exception as fault:  # the program must fail by itself, and not because of us
        sys.stderr.write(f"antifreeze: cannot examine this process: {type(fault).__name__}: {fault}\n")


def has_torch() -> bool:
    """Whether anything is lost: a Python without torch has no loaders."""
    import importlib.util

    return importlib.util.find_spec("torch") is not None


leave_the_path()
try:
    run_the_users_own()  # what it raises is the user's; Python reports it as it always does
finally:
    if "ANTIFREEZE_EXAMINE" in os.environ:
        install_the_examiner()
    else:
        install_the_engine()
