"""The quickest of the articles' examples, through the functions of `make articles`, which runs all of them."""

import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "articles"))

from cells import COLUMNS, EXAMPLES, Cell, Column, Ending, Example, last_error_line, named_none_sample, run_cell
from drive import has_all_words_of_any
from page import CLAIMS, commands_of

# The examples have four workers each, and a spawned torch imports for seconds when the machine is busy.
LIMIT_S = 60.0

TORCH_FORK = Column("torch", "fork")


def example_named(part: str) -> Example:
    return next(example for example in EXAMPLES if part in example.name)


def ended(*, stderr: str = "", stdout: str = "", exit_code: int | None = 0, seconds: float = 1.0) -> Ending:
    return Ending(exit_code, False, seconds, stdout, stderr, (), ())


@pytest.mark.long
def test_a_lambda_in_the_dataset_crosses_under_spawn() -> None:
    cell = run_cell(example_named("pickling"), Column("antifreeze", "spawn"), time_limit_s=LIMIT_S)
    assert cell.faults == ()


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_samples_that_are_none_end_in_an_error_that_names_one(method: str) -> None:
    cell = run_cell(example_named("exception"), Column("antifreeze", method), time_limit_s=LIMIT_S)
    assert cell.faults == ()


def test_a_script_that_hangs_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    script = """
        import os, time
        os.fork()
        os.setsid() if os.getpid() != os.getsid(0) else None
        time.sleep(3600)
    """
    (tmp_path / "sleeper.py").write_text(textwrap.dedent(script))
    cell = run_cell(Example(str(tmp_path / "sleeper")), TORCH_FORK, time_limit_s=4.0)
    assert (cell.outcome, cell.delivered) == ("hang", False)


def test_what_a_script_leaves_behind_is_named_and_stopped(tmp_path: Path) -> None:
    script = """
        import os, time
        if os.fork() == 0:
            time.sleep(3600)
        print("samples right: 1 of 1")
    """
    (tmp_path / "orphan.py").write_text(textwrap.dedent(script))
    cell = run_cell(Example(str(tmp_path / "orphan")), TORCH_FORK, time_limit_s=10.0)
    assert cell.delivered
    assert len(cell.ending.left_behind) == 1 and cell.ending.left_behind[0].startswith("process ")


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("TypeError: sample 39 is None", 39),
        ("TypeError: cannot collate\n  where  batch 0, sample 39\n  why    the dataset returned None", 39),
        ("TypeError: the dataset returned None for index 31 (worker 0)", 31),
        ("TypeError: default_collate: batch must contain tensors; found <class 'NoneType'>", None),
        ("TypeError: sample 0 is None", None),  # the position in the batch, not the index
        ("TypeError: bad sample 39\nOriginal Traceback (most recent call last):\n    return None # Returning", None),
    ],
)
def test_an_error_counts_only_if_it_says_none_and_which_sample(message: str, named: int | None) -> None:
    stack = 'Traceback (most recent call last):\n  File "sample 38 None.py", line 1\n    return None  # sample 38\n'
    stderr = f"{stack}{message}\n"
    assert named_none_sample(stderr) == named


def test_the_last_line_is_the_error_without_what_changes_from_run_to_run() -> None:
    stderr = (
        "RuntimeError: worker (pid(s) 4123, 4124) at 0x7f00 exited\n\nlib.py:431: UserWarning: four workers\n  warn()\n"
    )
    assert last_error_line(stderr) == "RuntimeError: worker (pid(s) …) at 0x… exited"


def test_an_exit_of_zero_is_not_enough() -> None:
    example = example_named("pickling")
    assert not Cell(example, TORCH_FORK, ended()).delivered
    assert not Cell(example, TORCH_FORK, ended(stdout="samples right: 99 of 100\n")).delivered
    assert Cell(example, TORCH_FORK, ended(stdout="samples right: 100 of 100\n")).delivered


def test_every_claim_has_a_verdict_and_a_command_that_shows_it() -> None:
    for claims in CLAIMS.values():
        for claim in claims:
            assert claim.verdict and commands_of(claim), claim.words


def test_a_command_of_the_page_asks_for_the_cells_it_is_about_and_no_others() -> None:
    asked = [column.title for column in COLUMNS if has_all_words_of_any(column.title, ["torch fork"])]
    assert asked == ["torch fork"]
    spawned = [column.title for column in COLUMNS if has_all_words_of_any(column.title, ["spawn"])]
    assert spawned == ["torch spawn", "antifreeze spawn"]


def test_our_columns_are_right_only_on_our_engine() -> None:
    cell = Cell(example_named("pickling"), COLUMNS[-1], ended(stdout="samples right: 100 of 100\n"))
    assert cell.faults == ("no loader said which engine it ran on",)
