"""Run every client of this folder on torch and on our engine, and say whether anybody could tell the difference.

    make clients                                    installs them into .venv-clients and runs all
    .venv-clients/bin/python clients/drive_clients.py --only lightning --only fastai
    make clients CLIENTS=--write                    all, and the table in docs/clients.md from them

Exit status 1 if a loss differs in its last bit, a loader that must be ours is not, a way around us was taken, or a
process was left behind.
"""

from __future__ import annotations

import argparse
import platform
import signal
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from resumptions import RESUMPTIONS, Resumed, run_resumption
from trials import CLIENTS, TIME_LIMIT_S, Trial, run_client

PAGE = Path(__file__).resolve().parents[1] / "docs" / "clients.md"
BEGIN, END = "<!-- seen: written by `make clients CLIENTS=--write` -->\n", "<!-- end -->\n"


def main() -> int:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an ending that stops the run under way, too
    words = [word.lower() for word in options.only or [""]]
    chosen = [client for client in CLIENTS if any(word in client.name.lower() for word in words)]
    resumptions = [each for each in RESUMPTIONS if any(word in each.name.lower() for word in words)]
    missing = [client for client in (*chosen, *resumptions) if client.version() is None]
    if not (chosen or resumptions) or missing or (options.write and len(chosen) < len(CLIENTS)):
        names = ", ".join(client.package for client in missing)
        print(f"not installed: {names}" if missing else "no such client, or --write without all", file=sys.stderr)
        return 2
    started = time.monotonic()
    trials = []
    for client in chosen:
        trials.append(run_client(client, time_limit_s=options.timeout))
        print(terminal_lines(trials[-1]), flush=True)
    resumed = []
    for each in resumptions:
        resumed.append(run_resumption(each, time_limit_s=options.timeout))
        print(terminal_line(resumed[-1]), flush=True)
    count = len(trials) + len(resumed)
    faulty = [each for each in (*trials, *resumed) if each.faults]
    print(f"{count - len(faulty)} of {count} as they must be, {time.monotonic() - started:.0f} s")
    if options.write:
        PAGE.write_text(with_table(PAGE.read_text(), table(trials) + resumed_table(resumed)))
        print(f"wrote {PAGE}")
    return 1 if faulty else 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="WORD", help="clients whose name contains WORD")
    parser.add_argument(
        "--timeout", type=float, default=TIME_LIMIT_S, metavar="S", help="seconds per run (%(default)g)"
    )
    parser.add_argument("--write", action="store_true", help="write the table in docs/clients.md")
    return parser.parse_args()


def terminal_lines(trial: Trial) -> str:
    count = sum(len(losses) for losses in trial.torch.losses.values())
    summary = (
        f"{'FAULT' if trial.faults else 'ok':5} {trial.client.name:27} {trial.client.version() or '':10}"
        f" {'same' if trial.is_same else 'OTHER'} {count} losses,"
        f" {trial.on_engine} iterators on our engine, {trial.fallen_back} fallen back,"
        f" {trial.torch.seconds:.0f} s and {trial.compared.seconds:.0f} s"
    )
    faults = [f"      {fault}" for fault in trial.faults]
    return "\n".join([summary, *faults, *(f"      printed: {line}" for line in trial.compared.said)])


def terminal_line(resumed: Resumed) -> str:
    faults = "".join(f"\n      {fault}" for fault in resumed.faults)
    client = resumed.resumption
    return f"{'FAULT' if faults else 'ok':5} {client.name:27} {client.version()} {len(resumed.whole)} losses{faults}"


def resumed_table(resumed: Sequence[Resumed]) -> str:
    lines = ["", "| stopped in mid-epoch, resumed in another process | version | losses compared | to the last bit |"]
    lines.append("|---|---|---|---|")
    for each in resumed:
        same = f"**{each.faults[0]}**" if each.faults else "the same"
        client = each.resumption
        lines.append(f"| {client.name.partition(',')[0]} | {client.version()} | {len(each.whole)} | {same} |")
    return "\n".join(lines) + "\n"


def table(trials: Sequence[Trial]) -> str:
    lines = [
        f"Python {platform.python_version()}, torch {metadata.version('torch')}, {platform.system()}.",
        "",
        "| library | version | losses compared | to the last bit | iterators on our engine | fallen back to torch |",
        "|---|---|---|---|---|---|",
    ]
    for trial in trials:
        count = sum(len(losses) for losses in trial.torch.losses.values())
        same = "the same" if trial.is_same else "**not the same**"
        ranks = f", in {trial.client.processes} processes" if trial.client.processes > 1 else ""
        lines.append(
            f"| {trial.client.name} | {trial.client.version()} | {count} | {same}"
            f" | {trial.on_engine} of {trial.client.iterators}{ranks} | {trial.fallen_back or '–'} |"
        )
    faults = [f"- {trial.client.name}: {fault}" for trial in trials for fault in trial.faults]
    return "\n".join([*lines, *(["", "Not as it must be:", "", *faults] if faults else [])]) + "\n"


def with_table(page: str, text: str) -> str:
    """The page with another table between the two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for the table: {BEGIN.strip()} … {END.strip()}")
    return before + begin + text + end + after


if __name__ == "__main__":
    sys.exit(main())
