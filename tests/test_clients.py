"""`make clients`: what it reads from a run, and what it makes of it. The clients themselves take minutes."""

import ast
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "clients"))

from drive_clients import BEGIN, END, PAGE, resumed_table, table, terminal_line, terminal_lines, with_table
from resumptions import RESUMPTIONS, Resumed
from trials import CLIENTS, HERE, Client, Ending, Losses, Trial, Usage, difference, last_error, losses_in, usage_in

CLIENT = Client("a library", "torch", "train_torchrun.py", iterators=2)
LOSSES = {"train": ("0x1.8p+1", "0x1.4p+1"), "valid": ("0x1.0p+0",)}
TORCH = Ending(0, 1.0, LOSSES)
OURS = replace(TORCH, usage=(Usage(11, "antifreeze", "grown"), Usage(11, "antifreeze", "grown")))
FELL_BACK = Usage(11, "torch", reason="it is an iterable dataset")

each_script = pytest.mark.parametrize("script", sorted({client.script for client in CLIENTS}))


def faults_of(ours: Ending, *, torch: Ending = TORCH, client: Client = CLIENT, **others: Ending) -> str:
    return "\n".join(Trial(client, torch, ours, **others).faults)


def test_losses_are_read_by_series_in_order() -> None:
    printed = "epoch 1\nloss train 0x1.8p+1\nloss valid -0x1.0p-3\nloss train nan\n"
    assert losses_in(printed) == {"train": ("0x1.8p+1", "nan"), "valid": ("-0x1.0p-3",)}


def test_losses_of_two_ranks_are_told_apart_where_their_line_ends_come_late() -> None:
    printed = "loss rank 0 train 0x1.8p+1loss rank 1 train 0x1.4p-12\n\nloss rank 0 train 0x1.0p+0\n"
    assert losses_in(printed) == {"rank 0 train": ("0x1.8p+1", "0x1.0p+0"), "rank 1 train": ("0x1.4p-12",)}


def test_a_loss_that_is_written_by_a_script_is_read() -> None:
    assert losses_in(f"loss train {(0.1).hex()}\n") == {"train": ((0.1).hex(),)}


def test_the_last_error_is_found_before_what_a_launcher_says_after_it() -> None:
    stderr = "Traceback …\nValueError: once\n[rank1]: antifreeze.errors.Fallback: why\n  a note\n=====\n"
    assert last_error(stderr) == "[rank1]: antifreeze.errors.Fallback: why"
    assert last_error("") == "nothing on stderr"


def test_usage_is_read_as_the_engine_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from antifreeze.observe import usage

    monkeypatch.setenv("ANTIFREEZE_USAGE", str(tmp_path / "usage"))
    usage.record(engine="antifreeze", stem="grown", reason=None)
    usage.record(engine="torch", stem=None, reason="why")
    first, second = usage_in((tmp_path / "usage").read_text())
    assert first.is_ours and first.stem == "grown"
    assert not second.is_ours and second.reason == "why"
    assert first.pid == json.loads((tmp_path / "usage").read_text().splitlines()[0])["pid"]


def test_the_same_losses_on_our_engine_are_no_fault() -> None:
    assert faults_of(OURS) == ""
    assert Trial(CLIENT, TORCH, OURS).is_same


def test_a_loss_that_differs_in_its_last_bit_is_a_fault() -> None:
    other = replace(OURS, losses=LOSSES | {"train": ("0x1.8p+1", "0x1.4000000000001p+1")})
    assert "losses of train differ from number 2 of 2 on: 0x1.4000000000001p+1" in faults_of(other)


def test_losses_that_torch_does_not_repeat_are_told() -> None:
    other = replace(OURS, losses={"train": ("0x1.0p+0",)})
    assert "every time" in faults_of(other, torch_again=replace(TORCH, losses={}))
    assert "every time" not in faults_of(other, torch_again=TORCH)


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ({}, "no losses were printed"),
        ({"train": LOSSES["train"]}, "other series of losses"),
        (LOSSES | {"train": ("0x1.8p+1",)}, "losses of train: 1, and on torch 2"),
    ],
)
def test_the_difference_says_where_two_runs_part(ours: dict[str, tuple[str, ...]], words: str) -> None:
    assert words in difference(LOSSES, ours)


def test_a_run_without_losses_is_not_the_same_as_another_without_losses() -> None:
    silent = replace(TORCH, losses={})
    assert "no losses were printed" in faults_of(replace(OURS, losses={}), torch=silent)


def test_a_loader_that_falls_back_is_a_fault_unless_it_may() -> None:
    mixed = replace(OURS, usage=(OURS.usage[0], FELL_BACK))
    assert "1 of 2 iterators fell back: it is an iterable dataset" in faults_of(mixed)
    assert faults_of(mixed, client=replace(CLIENT, may_fall_back=True)) == ""


def test_losses_of_a_loader_that_must_not_fall_back_are_compared_all_the_same() -> None:
    refused = Ending(1, 1.0, {}, last_words="Fallback", usage=(FELL_BACK,))
    lenient = replace(OURS, usage=(FELL_BACK, FELL_BACK))
    trial = Trial(CLIENT, TORCH, refused, lenient)
    assert trial.is_same and trial.on_engine == 0 and trial.fallen_back == 2
    assert trial.faults == ("2 of 2 iterators fell back: it is an iterable dataset",)


def test_a_loader_that_went_around_us_is_a_fault() -> None:
    assert "1 iterators came to us, and torch makes 2" in faults_of(replace(OURS, usage=OURS.usage[:1]))


def test_a_rank_without_our_engine_is_a_fault() -> None:
    assert "we are in 1 of 2 processes" in faults_of(OURS, client=replace(CLIENT, processes=2))


def test_a_run_that_fails_or_hangs_is_a_fault_on_either_side() -> None:
    failed = Ending(1, 1.0, {}, last_words="KeyError: 3")
    assert faults_of(OURS, torch=failed) == "on torch: exit status 1: KeyError: 3"
    assert faults_of(Ending(None, 240.0, {})) == "on our engine: still running after 240 s, and stopped"


def test_a_process_left_behind_is_a_fault() -> None:
    assert faults_of(replace(OURS, left_behind=("process 3: python",))) == "left behind: process 3: python"


@each_script
def test_scripts_know_nothing_of_us_and_load_with_workers(script: str) -> None:
    text = (HERE / script).read_text()
    assert "antifreeze" not in text.lower()
    assert "num_workers=2" in text
    ast.parse(text)


@each_script
def test_scripts_have_names_that_hide_no_library(script: str) -> None:
    assert script.startswith("train_")


def test_every_script_is_run() -> None:
    assert {file.name for file in HERE.glob("train_*.py")} == {client.script for client in CLIENTS}


def test_the_table_and_the_terminal_name_what_is_wrong() -> None:
    bad = Trial(CLIENT, TORCH, replace(OURS, usage=(OURS.usage[0], FELL_BACK), said=("antifreeze: look",)))
    assert "| a library |" in table([bad]) and "Not as it must be" in table([bad])
    assert "FAULT" in terminal_lines(bad) and "antifreeze: look" in terminal_lines(bad)
    assert "Not as it must be" not in table([Trial(CLIENT, TORCH, OURS)])


def test_the_page_keeps_its_words_around_a_new_table() -> None:
    assert with_table(f"a\n{BEGIN}old\n{END}b\n", "new\n") == f"a\n{BEGIN}new\n{END}b\n"
    with pytest.raises(ValueError):
        with_table("a page without marks", "new\n")


def test_the_page_has_a_place_for_the_table_and_a_row_for_every_client() -> None:
    _, _, rest = PAGE.read_text().partition(BEGIN)
    seen, end, _ = rest.partition(END)
    assert end
    for client in CLIENTS:
        assert f"| {client.name} |" in seen


WHOLE = {f"step {number}": (float(number).hex(),) for number in range(24)}
FIRST = {step: WHOLE[step] for step in list(WHOLE)[:12]}
SECOND = {step: WHOLE[step] for step in list(WHOLE)[11:]}


def test_two_halves_that_say_what_the_whole_says_are_no_fault() -> None:
    resumed = Resumed(RESUMPTIONS[0], WHOLE, (FIRST, SECOND))
    assert resumed.faults == ()
    assert "| the same |" in resumed_table([resumed])


@pytest.mark.parametrize(
    ("halves", "fault"),
    [
        ((FIRST, {**SECOND, "step 20": ("0x0p+0",)}), "losses differ from step 20 on"),
        (({**FIRST, "step 3": ("0x0p+0",)}, SECOND), "losses differ from step 3 on"),
        ((FIRST, WHOLE), "24 losses after the resume, of 24 in all"),  # it has begun anew
        (({}, SECOND), "steps are missing"),
    ],
)
def test_a_resume_that_is_not_exact_is_a_fault(halves: tuple[Losses, Losses], fault: str) -> None:
    resumed = Resumed(RESUMPTIONS[0], WHOLE, halves)
    assert resumed.faults == (fault,)
    assert "FAULT" in terminal_line(resumed) and fault in resumed_table([resumed])


def test_every_resumption_is_run_and_stands_on_the_page() -> None:
    assert {file.name for file in HERE.glob("resume_*.py")} == {each.script for each in RESUMPTIONS}
    assert "stopped in mid-epoch, resumed in another process" in PAGE.read_text()
