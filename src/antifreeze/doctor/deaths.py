"""How workers ended: killed by others, crashed by themselves, or left on their own. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from antifreeze.doctor.cases import LoaderCase
from antifreeze.doctor.facts import Death, Trial
from antifreeze.doctor.pictures import LIVE

SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
# That a process brings upon itself.
OWN_FAULT = ("SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGSYS")


def signal_of(death: Death) -> str | None:
    """The name of the signal that ended it; None: it exited."""
    if death.how.startswith("SIG"):
        return death.how
    if death.exitcode is None or death.exitcode >= 0:
        return None
    return SIGNALS.get(-death.exitcode, f"signal {-death.exitcode}")


def is_exit(death: Death) -> bool:
    return signal_of(death) is None


def is_at_birth(death: Death, trial: Trial) -> bool:
    """Whether it ended before it had begun to work: what it could not import or unpickle is to blame."""
    if trial.loader == LIVE:  # a worker is known as one only once it works
        return False
    is_unknown = death.sample is None and death.place is None and death.how not in ("sys.exit", "os._exit")
    return is_unknown and (trial.batches == 0 or bool(trial.raised and trial.raised.stage == "start"))


def deaths_in(case: LoaderCase) -> Iterator[tuple[Trial, Death]]:
    for trial in case.trials:
        for death in trial.deaths:
            yield trial, death


def end_of(death: Death) -> str:
    """`killed by SIGKILL`, `exit code 1 (os._exit)`."""
    signal = signal_of(death)
    if signal:
        return f"killed by {signal}"
    code = "an exit code that nobody could read" if death.exitcode is None else f"exit code {death.exitcode}"
    return f"{code} ({death.how})" if death.how and death.how != "exit" else code


def of_worker(death: Death) -> str:
    """`worker 1 (pid 4243) at sample 13`."""
    sample = f" at sample {death.sample}" if death.sample is not None else ""
    return f"worker {death.worker} (pid {death.pid}){sample}"
