"""The report as people read it."""

import dataclasses

import pytest

from antifreeze.doctor.facts import Facts, Machine, Outcome, ProcessPicture, Run, Source
from antifreeze.doctor.finding import Finding
from antifreeze.doctor.render.text import Look, as_block, as_text
from antifreeze.doctor.render.words import size
from doctor.frozen import DOUBT, FROZEN, POOL

PLAIN = Look()


def lines(facts: Facts = FROZEN, *findings: Finding, look: Look = PLAIN) -> list[str]:
    return as_text(facts, findings, look=look).splitlines()


def test_a_finding_says_what_where_why_fix_and_next_in_this_order() -> None:
    assert as_block(POOL, FROZEN, look=PLAIN).splitlines() == [
        "AF101 fork-after-threads                              certain (reproduced: no batch for 12 s)",
        "  data.py:88   return self.pool.map(read, parts)",
        "  what   worker 1 never returned sample 2",
        "  where  in __getitem__, loader of train.py:41, worker 1 (pid 4243), sample 2",
        "  why    data.py:12 makes a ThreadPoolExecutor in the trainer; its threads do not exist in a forked worker",
        "  fix    antifreeze run project/train.py --epochs 3",
        "  or     make the pool on first use: {'pool': None}",
        "  next   antifreeze explain AF101",
    ]


def test_long_evidence_is_cut_in_the_first_line_and_whole_below() -> None:
    long = dataclasses.replace(POOL, evidence=("word " * 20,))
    assert as_block(long, FROZEN, look=PLAIN).splitlines()[0].endswith("…)")
    assert "  seen   " + "word " * 20 in as_block(long, FROZEN, look=Look(is_verbose=True)).splitlines()


def test_a_doubt_names_its_rivals_and_the_command_that_would_decide() -> None:
    rows = as_block(DOUBT, FROZEN, look=PLAIN)
    assert "it may also be AF406 data-bound" in rows
    assert rows.endswith("next   antifreeze doctor --batches 100 project/train.py --epochs 3")


def test_areas_where_all_is_well_share_a_line() -> None:
    said = lines(FROZEN, POOL)
    assert said[0].startswith("[✓] machine 8 CPUs · /dev/shm 16 GB · source 2 files · trials 3")
    assert said[1] == "[✗] loaders  train.py:41, num_workers=2 freezes — AF101 fork-after-threads"
    assert said[2] == ""


def test_with_v_every_area_has_its_line_and_every_evidence_and_the_last_words_are_there() -> None:
    said = lines(FROZEN, POOL, look=Look(is_verbose=True))
    assert (
        said[0] == "[✓] machine   8 CPUs usable (cgroup; the machine has 64), 31 GB free, python 3.11.7, torch 2.13.0"
    )
    assert "[✓] trials    torch with 0 works, 2 freezes; antifreeze with 2 works" in said
    for line in ("  seen   futex wait", "the last 2 lines that it wrote to stderr", "  loading…"):
        assert line in said


def test_of_a_machine_all_areas_are_shown() -> None:
    said = lines(Facts(machine=FROZEN.machine))
    assert [line.split()[1] for line in said if line.startswith("[")] == [
        "processors",
        "memory",
        "/dev/shm",
        "descriptors",
        "settings",
        "versions",
    ]
    assert said[-1] == "nothing found   next: antifreeze doctor train.py"


def test_a_loader_that_freezes_is_bad_even_if_nobody_knows_why() -> None:
    assert "[✗] loaders  train.py:41, num_workers=2 freezes" in lines(FROZEN)


def test_a_script_that_never_comes_to_a_loader_is_said() -> None:
    facts = Facts(source=Source(script="train.py"), run=Run(command="train.py", outcome=Outcome.OK))
    assert "[!] loaders  none was iterated before the script ended" in lines(facts)
    failed = dataclasses.replace(
        facts, run=Run(command="train.py", outcome=Outcome.ERROR, stderr="usage: train.py --data DATA\n")
    )
    said = lines(failed)
    assert "[✗] loaders  the script fails before its first batch" in said
    assert "  usage: train.py --data DATA" in said
    assert said[-1] == "nothing found   first let it come to its first batch: python train.py"


def test_a_finding_marks_its_area() -> None:
    shm = dataclasses.replace(POOL, code="AF204", loader=None)
    assert "[✗] /dev/shm  16 GB — AF204 shm-too-small" in lines(FROZEN, shm)
    slow = dataclasses.replace(DOUBT, code="AF901")
    assert any(line.startswith("[!] machine") and line.endswith("AF901 few-processors") for line in lines(FROZEN, slow))


def test_what_only_a_fork_can_bring_to_workers_is_a_line_on_portability() -> None:
    said = next(line for line in lines() if line.startswith("portability"))
    assert said.endswith(" with spawn and forkserver (Windows, macOS, Python 3.14): dataset.pool at data.py:12")
    spawned = dataclasses.replace(FROZEN.loaders[0], start_method="spawn")
    assert not any(line.startswith("portability") for line in lines(dataclasses.replace(FROZEN, loaders=(spawned,))))


def test_the_number_of_workers_to_use_comes_with_what_was_measured() -> None:
    said = lines()
    start = next(number for number, line in enumerate(said) if line.startswith("workers      num_workers=2: "))
    assert said[start + 1].startswith("             torch        0: 160 samples/s   2: freezes")
    assert said[start + 2].startswith("             antifreeze   2: 200 samples/s")


@pytest.mark.parametrize(
    ("facts", "findings", "last"),
    [
        (
            Facts(run=Run(command="t.py", outcome=Outcome.OK)),
            (POOL, DOUBT),
            "2 findings (1 certain, 1 possible)   train meanwhile: antifreeze run t.py   read: antifreeze explain AF101",
        ),
        (
            FROZEN,
            (dataclasses.replace(POOL, fix=("mend it", "antifreeze run --retry 2 t.py   (tries again)")),),
            "1 finding (1 certain)   train meanwhile: antifreeze run --retry 2 t.py   read: antifreeze explain AF101",
        ),
        (
            FROZEN,
            (dataclasses.replace(POOL, fix=("mend it",)),),
            "1 finding (1 certain)   read: antifreeze explain AF101",
        ),
        (FROZEN, (DOUBT,), "1 finding (1 possible)   read: antifreeze explain AF404"),
        (FROZEN, (), "nothing found   if it freezes later: antifreeze doctor PID, while it does"),
        (Facts(source=Source(script="a.py")), (), "nothing found   try it: antifreeze doctor a.py"),
        (
            Facts(processes=(ProcessPicture(pid=7, parent=1, role="trainer"),)),
            (),
            "nothing found   see all stacks: antifreeze dump 7",
        ),
    ],
)
def test_the_last_line_is_the_count_and_the_next_command(
    facts: Facts, findings: tuple[Finding, ...], last: str
) -> None:
    assert lines(facts, *findings)[-1] == last


def test_colours_are_only_there_if_asked_for_and_change_no_word() -> None:
    plain = as_text(FROZEN, [POOL], look=PLAIN)
    coloured = as_text(FROZEN, [POOL], look=Look(is_coloured=True))
    assert "\x1b" not in plain
    assert "\x1b[31mcertain\x1b[0m" in coloured
    for code in ("0", "1", "31", "32", "33", "36"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == plain


def test_prose_is_wrapped_to_the_terminal_and_what_is_to_be_pasted_is_not() -> None:
    rows = as_block(POOL, FROZEN, look=Look(width=60)).splitlines()
    assert "         trainer; its threads do not exist in a forked" in rows
    assert "  fix    antifreeze run project/train.py --epochs 3" in rows


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("/opt/bin/python3.11 -u -X dev train.py --lr 1", "train.py --lr 1"),
        ("python -m package.train", "-m package.train"),
        ("python", "train.py"),
        ("/usr/bin/train", "train.py"),
        ("", "train.py"),
    ],
)
def test_of_a_process_the_fix_names_its_own_script(command: str, script: str) -> None:
    facts = Facts(processes=(ProcessPicture(pid=7, parent=1, role="trainer", command=command),))
    assert f"  fix    antifreeze run {script}" in as_block(POOL, facts, look=PLAIN).splitlines()


def test_a_loader_in_a_module_is_no_script_to_run() -> None:
    facts = Facts(run=Run(command="package.data:make", outcome=Outcome.OK))
    assert "  fix    antifreeze run train.py" in as_block(POOL, facts, look=PLAIN).splitlines()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (64 << 20, "64 MB"),
        (1 << 30, "1 GB"),
        (3 << 29, "1.5 GB"),
        (1000 << 20, "0.98 GB"),
    ],
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert size(count) == text


def test_the_processes_of_a_program_are_counted() -> None:
    pictures = [ProcessPicture(pid=pid, parent=1, role=role) for pid, role in enumerate(["trainer", "child", "child"])]
    said = lines(Facts(processes=tuple(pictures)))
    assert any(line.endswith("processes  1 trainer, 2 children") for line in said)


def test_a_machine_without_shared_memory_is_no_trouble() -> None:
    assert "[✓] /dev/shm    there is none" in lines(Facts(machine=Machine(cpus=1, usable_cpus=1)))
