"""`antifreeze run`: the script is its own program, and the engine is in it and in what it starts."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antifreeze import hook
from antifreeze.cli import run
from antifreeze.cli.main import main, part_from_script
from antifreeze.options import Option
from user_scripts import Ended

RunScript = Callable[..., Ended]
BOOTSTRAP = str(hook.BOOTSTRAP)

TELL = """
import json, os, sys
print(json.dumps({
    "argv": sys.argv,
    "name": __name__,
    "spec": __spec__ and __spec__.name,
    "file": __file__,
    "path": sys.path,
    "flags": [sys.flags.optimize, sys.flags.dev_mode],
    "warnings": sys.warnoptions,
    "unbuffered": sys.stdout.write_through,
    "cwd": os.getcwd(),
    "variables": sorted(name for name in os.environ if name.startswith("PYTHON") and name != "PYTHONPATH"),
    "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
}))
"""
IS_HOOKED = "any(type(finder).__module__ == 'antifreeze.whenimported' for finder in __import__('sys').meta_path)"


def told(ended: Ended) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(ended.check().stdout)
    return answer


def test_the_script_sees_what_it_would_see_without_us(run_script: RunScript, tmp_path: Path) -> None:
    script = tmp_path / "tell.py"
    script.write_text(TELL)
    plain, ours = told(run_script(script, "a", "b")), told(run_script(script, "a", "b", via="antifreeze"))
    assert ours.pop("sitecustomize") == str(hook.BOOTSTRAP / "sitecustomize.py")
    assert plain.pop("sitecustomize") is None
    assert ours == plain
    assert ours["spec"] is None
    assert ours["path"][0] == str(tmp_path)
    assert BOOTSTRAP not in ours["path"]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_script_runs_without_standard_streams(tmp_path: Path, closed: str) -> None:
    (tmp_path / "script.py").write_text("open('ran', 'w').close()")
    command = f"{shlex.quote(sys.executable)} -m antifreeze run script.py {closed}"
    subprocess.run(command, shell=True, cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "ran").exists()


def test_a_file_with_secrets_beside_the_script_is_not_ours_to_import(tmp_path: Path) -> None:
    (tmp_path / "secrets.py").write_text("KEY = 'abc'")
    (tmp_path / "script.py").write_text("import secrets; print(secrets.KEY)")
    ended = subprocess.run(
        [sys.executable, "-m", "antifreeze", "run", "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == "abc\n"


WORDS = ["-h", "--version", "--", "-", "", "two words", "run", "--lr=1e-3", "*.py"]


def test_everything_after_the_script_belongs_to_the_script(run_script: RunScript, tmp_path: Path) -> None:
    script = tmp_path / "tell.py"
    script.write_text(TELL)
    assert told(run_script(script, *WORDS, via="antifreeze"))["argv"] == [str(script), *WORDS]


def run_in(folder: Path, *words: str) -> Ended:
    """As a user types it in this folder."""
    ended = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr, 0.0)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the package `pack`, which has a module that tells, and can be run itself."""
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "beside.py").touch()
    for name in ("tell", "__main__"):
        (tmp_path / "pack" / f"{name}.py").write_text(
            f"from . import beside\n{TELL}\nassert {IS_HOOKED} or 'plain' in sys.argv"
        )
    return tmp_path


@pytest.mark.parametrize("name", ["pack.tell", "pack"])
def test_a_module_sees_what_it_would_see_without_us(package: Path, name: str) -> None:
    ours = told(run_in(package, "-m", "antifreeze", "run", "--stats", "-m", name, "a", "-m", "--retry"))
    plain = told(run_in(package, "-m", name, "plain"))
    assert ours.pop("argv") == [plain.pop("argv")[0], "a", "-m", "--retry"]
    assert ours.pop("sitecustomize") == str(hook.BOOTSTRAP / "sitecustomize.py")
    assert plain.pop("sitecustomize") is None
    assert ours == plain
    assert ours["spec"] in ("pack.tell", "pack.__main__")
    assert ours["path"][0] == str(package)


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["-m", "pack", "-m", "x"], ["-m", "pack"]),
        (["-mpack", "-h"], ["-mpack"]),
        (["--retry", "2", "-m", "pack", "--", "x"], ["--retry", "2", "-m", "pack"]),
        (["train.py", "-m", "pack"], ["train.py"]),
        (["--max-lost", "2", "train.py"], ["--max-lost", "2", "train.py"]),
        (["-m"], ["-m"]),
    ],
)
def test_what_follows_the_script_or_the_module_is_not_ours(words: list[str], own: list[str]) -> None:
    assert part_from_script(["run", *words], with_value=run.WITH_VALUE) == (["run", *own], words[len(own) :])


def test_a_module_that_does_not_exist_is_pythons_own_error(package: Path) -> None:
    ours, plain = run_in(package, "-m", "antifreeze", "run", "-m", "pack.no"), run_in(package, "-m", "pack.no")
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)
    assert ours.returncode == 1


def test_flags_of_the_interpreter_are_passed_on(run_script: RunScript, tmp_path: Path) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    ended = subprocess.run(
        [sys.executable, "-O", "-u", "-Wignore::UserWarning", "-X", "dev", "-m", "antifreeze", "run", "tell.py"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        timeout=120,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    seen = json.loads(ended.stdout)
    assert seen["flags"] == [1, True]
    assert "ignore::UserWarning" in seen["warnings"]
    assert seen["unbuffered"]


@pytest.mark.parametrize(
    ("body", "status"),
    [("", 0), ("import sys; sys.exit(7)", 7), ("raise ValueError", 1), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_the_exit_status_is_the_scripts(run_script: RunScript, body: str, status: int) -> None:
    assert run_script(body, via="antifreeze").returncode == status


def test_a_traceback_has_no_line_of_ours(run_script: RunScript) -> None:
    ended = run_script("raise ValueError('of the script')", via="antifreeze")
    assert ended.stderr.count("File ") == 1
    assert "antifreeze" not in ended.stderr.replace("antifreeze-tests-", "")


def test_healthy_scripts_hear_nothing_from_us(run_script: RunScript) -> None:
    ended = run_script("print('hello')", via="antifreeze").check()
    assert (ended.stdout, ended.stderr) == ("hello\n", "")


def test_python_processes_that_the_script_starts_are_hooked_too(run_script: RunScript) -> None:
    ended = run_script(
        f"""
import multiprocessing, subprocess, sys
def child():
    print({IS_HOOKED}, flush=True)
if __name__ == "__main__":
    child()
    subprocess.run([sys.executable, "-c", "print({IS_HOOKED})"], check=True)
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    process.join(20)
""",
        via="antifreeze",
    ).check()
    assert ended.stdout.split() == ["True"] * 3


def test_without_run_nothing_is_hooked(run_script: RunScript) -> None:
    assert run_script(f"print({IS_HOOKED})").check().stdout == "False\n"


@pytest.mark.parametrize("word", ["0", "off"])
def test_when_antifreeze_is_off_nothing_of_ours_is_loaded(run_script: RunScript, word: str) -> None:
    ended = run_script("import sys; print('antifreeze' in sys.modules)", via="antifreeze", env={"ANTIFREEZE": word})
    assert ended.check().stdout == "False\n"


def test_the_hook_imports_nothing_heavy(run_script: RunScript) -> None:
    heavy = ("torch", "typing", "enum", "importlib", "re", "threading", "collections")
    body = f"import sys; print([name for name in {heavy} if name in sys.modules])"
    assert run_script(body, via="antifreeze").stdout == run_script(body).stdout


def test_the_engine_is_behind_torchs_name(run_script: RunScript) -> None:
    ended = run_script(
        """
import torch
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as copied
print(copied.__module__)
""",
        via="antifreeze",
    ).check()
    assert (ended.stdout, ended.stderr) == ("antifreeze.iterator\n", "")


# --- sitecustomize


def test_the_users_own_sitecustomize_still_runs(run_script: RunScript, tmp_path: Path) -> None:
    own = tmp_path / "own" / "sitecustomize.py"
    own.parent.mkdir()
    own.write_text("import builtins\nbuiltins.own_ran = __name__\nvalue = 1\n")
    body = (
        f"{TELL}\nimport sitecustomize\nassert own_ran == 'sitecustomize' and sitecustomize.value\nassert {IS_HOOKED}"
    )
    seen = told(run_script(body, via="antifreeze", env={"PYTHONPATH": str(own.parent)}))
    assert seen["sitecustomize"] == str(own)


@pytest.mark.parametrize("fault", ["1 / 0", "import no_such_module"])
def test_a_sitecustomize_that_fails_is_reported_as_ever_and_the_engine_is_still_there(
    run_script: RunScript, tmp_path: Path, fault: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(fault)
    body, env = f"print({IS_HOOKED})", {"PYTHONPATH": str(tmp_path)}
    plain, ours = run_script(body, env=env).check(), run_script(body, env=env, via="antifreeze").check()
    assert ours.stderr == plain.stderr * 2 != "", "once for the process that becomes the script, once for the script"
    assert ours.stdout == "True\n"


def test_a_python_with_torch_but_without_antifreeze_says_so_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "torch.py").touch()
    ended = python_without_antifreeze(tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "ran\n")
    assert ended.stderr.startswith(f"antifreeze: not active in {sys.executable}: ")
    assert ended.stderr.count("\n") == 1


def test_a_python_without_torch_and_antifreeze_hears_nothing(tmp_path: Path) -> None:
    ended = python_without_antifreeze(tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ran\n", "")


def python_without_antifreeze(directory: Path) -> subprocess.CompletedProcess[str]:
    """Another interpreter that inherits our PYTHONPATH: here by a sitecustomize that takes site-packages away."""
    (directory / "sitecustomize.py").write_text(
        "import sys\nsys.path[:] = [entry for entry in sys.path if not entry.endswith(('site-packages', 'src'))]\n"
    )
    environ = {**hook.with_hook({"PYTHONPATH": str(directory)}), "HOME": str(directory)}
    return subprocess.run(
        [sys.executable, "-c", "print('ran')"], env=environ, capture_output=True, text=True, timeout=120, check=False
    )


# --- the environment, and what cannot be run


def test_the_hook_comes_first_and_the_rest_of_pythonpath_is_kept() -> None:
    rest = os.pathsep.join(["/a", "/b"])
    assert hook.with_hook({"PYTHONPATH": rest})["PYTHONPATH"] == os.pathsep.join([BOOTSTRAP, rest])


@pytest.mark.parametrize("given", [":/a", "/a:", "/a::/b"])
def test_an_empty_entry_of_pythonpath_stays_the_working_directory(tmp_path: Path, given: str) -> None:
    assert hook.with_hook({"PYTHONPATH": given})["PYTHONPATH"] == f"{BOOTSTRAP}:{given}"
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text("import beside; print(beside.__name__)")
    (tmp_path / "beside.py").touch()
    command = [sys.executable, "-m", "antifreeze", "run", "scripts/train.py"]
    environ = {**os.environ, "PYTHONPATH": given}
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=150, check=True)
    assert ended.stdout == "beside\n"


@pytest.mark.parametrize("environ", [{}, {"PYTHONPATH": ""}, {"PYTHONPATH": BOOTSTRAP}])
def test_the_working_directory_does_not_slip_onto_the_path(environ: dict[str, str]) -> None:
    assert hook.with_hook(environ)["PYTHONPATH"] == BOOTSTRAP


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split()[0] for line in said.err.splitlines()] == ["antifreeze:", "where", "why", "try"]
    return said.err


def test_a_script_that_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "run", str(tmp_path / "train.py"))
    assert "no such file" in said and str(tmp_path / "train.py") in said


@pytest.mark.parametrize("program", ["app", "-"])
def test_a_directory_with_a_main_module_and_standard_input_are_programs(tmp_path: Path, program: str) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("import sys; print(__name__, sys.argv[1:])")
    command = [sys.executable, "-m", "antifreeze", "run", program, "--epochs", "3"]
    typed = (tmp_path / "app" / "__main__.py").read_text()
    ended = subprocess.run(command, cwd=tmp_path, input=typed, capture_output=True, text=True, timeout=150, check=True)
    assert ended.stdout == "__main__ ['--epochs', '3']\n"


def test_a_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is a directory" in refusal(capsys, "run", str(tmp_path))


def test_a_script_that_may_not_be_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    assert f"chmod +r {script}" in refusal(capsys, "run", str(script))


def test_a_bad_mode_is_refused_before_the_script_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.setenv("ANTIFREEZE", "perhaps")
    assert "perhaps" in refusal(capsys, "run", str(tmp_path / "train.py"))


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_a_python_that_the_hook_cannot_reach_is_refused(tmp_path: Path, flag: str) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    prepare = f"import sys; sys.path[:] = {sys.path!r}; from antifreeze.cli.main import main; sys.exit(main())"
    command = [sys.executable, flag, "-c", prepare, "run", str(tmp_path / "train.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert (ended.returncode, ended.stdout) == (2, ""), shlex.join(command)
    assert "PYTHONPATH" in ended.stderr


# --- options of our own

TELL_VARIABLES = """
import json, os, sys
print(json.dumps([sys.argv[1:], {name: value for name, value in os.environ.items() if name.startswith("ANTIFREEZE_")}]))
"""


def test_options_before_the_script_are_variables_to_it_and_what_follows_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "tell.py").write_text(TELL_VARIABLES)
    own = ["--on-error", "skip", "--retry=2", "--max-lost", "1%", "--stall-after", "2m", "--no-hedge", "--stats"]
    own += ["--sample-timeout", "5m"]
    command = [sys.executable, "-m", "antifreeze", "run", *own, "--ledger", "my.jsonl", "tell.py", "--retry", "9", "-h"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=True)
    arguments, variables = json.loads(ended.stdout)
    assert arguments == ["--retry", "9", "-h"]
    expected = {
        "ANTIFREEZE_ON_ERROR": "skip",
        "ANTIFREEZE_RETRY": "2",
        "ANTIFREEZE_MAX_LOST": "1%",
        "ANTIFREEZE_STALL_AFTER": "2m",
        "ANTIFREEZE_SAMPLE_TIMEOUT": "5m",
        "ANTIFREEZE_HEDGE": "0",
        "ANTIFREEZE_STATS": "1",
        "ANTIFREEZE_LEDGER": str(tmp_path / "my.jsonl"),
    }
    assert {name: variables.get(name) for name in expected} == expected


def test_without_options_no_variable_is_set(run_script: RunScript, tmp_path: Path) -> None:
    script = tmp_path / "tell.py"
    script.write_text(TELL_VARIABLES)
    plain, ours = (json.loads(run_script(script, via=via).check().stdout)[1] for via in ("python", "antifreeze"))
    assert set(ours) == set(plain)


@pytest.mark.parametrize(
    "words",
    [
        ["--on-error", "ignore"],
        ["--retry", "-1"],
        ["--retry=often"],
        ["--max-lost", "200%"],
        ["--stall-after", "soon"],
        ["--ledger", ""],
    ],
    ids=" ".join,
)
def test_a_value_that_cannot_work_is_refused_before_the_script_starts(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("raise AssertionError")
    assert words[0].split("=")[0] in refusal(capsys, "run", *words, str(tmp_path / "train.py"))


def test_a_variable_that_cannot_work_is_refused_before_the_script_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.setenv("ANTIFREEZE_MAX_LOST", "few")
    assert "ANTIFREEZE_MAX_LOST" in refusal(capsys, "run", str(tmp_path / "train.py"))


@pytest.mark.parametrize("option", run.FLAGS, ids=lambda option: option.name)
def test_every_option_is_explained(option: Option, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["run", "--help"])
    assert f"  {option.flag} " in capsys.readouterr().out


@pytest.mark.parametrize("words", [["run", "--retr", "3", "train.py"], ["run", "--retry"], ["run", "--no-hedge"]])
def test_options_are_neither_guessed_nor_left_without_value_or_script(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "usage: antifreeze" in capsys.readouterr().err
