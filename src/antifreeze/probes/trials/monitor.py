"""Watches one trial from outside, takes stacks when it hangs, and helps its trainer out of it, or ends it.

What is seen is written into the directory of the trial before the trainer is asked to go on: it reads it, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from antifreeze import machine
from antifreeze.doctor.facts import Stuck
from antifreeze.probes.bounded import TargetProcess, ask, kill
from antifreeze.probes.places import PlaceMaker
from antifreeze.probes.trials import record_files
from antifreeze.probes.trials.hang_detector import HangDetector, ProcessSeen, TrialLook, TrialVerdict
from antifreeze.probes.trials.records import ProcessState, SeenFromOutside, TrialStart, UnsentResult
from antifreeze.probes.trials.stuck_process import runs, stuck_process

# A trainer that is asked to end its trial does so at once, or is in native code for good.
ANSWER_S = 3.0
# torch gives each worker that is stuck five seconds, one after the other; the first of them is enough to see that.
SHUTDOWN_S = 6.0
# A worker that takes so long for a sample is looked at at once: later it may be gone.
LONG_S = 2.0
MOST_LONG = 4
# Workers that wait for a dead trainer find out within their next look, those that are stuck never.
ORPHANED_S = 1.5
# A trial that is cut short, and in which nothing has come for so long.
BLOCKED_AT_THE_END_S = 5.0
OURS_AT_THE_END_S = 15.0
# The second time, a hang comes as soon as the first time, or not at all.
LATE_S = 12.0
# Our engine gives a stuck worker some time before it helps itself.
OUR_PATIENCE = 2.0
FEWEST_LOOKS = 4
MOST_CHARACTERS = 6000


class TrialMonitor:
    """Of one trial."""

    def __init__(self, directory: Path, target: TargetProcess, places: PlaceMaker) -> None:
        self.directory = directory
        start = record_files.read_whole(directory / record_files.ABOUT, TrialStart)
        assert start is not None
        self._start = start
        self._plan = start.plan
        self._target = target
        self._places = places
        is_ours = self._plan.engine == "antifreeze"
        self._detector = HangDetector(began=time.monotonic(), patience=OUR_PATIENCE if is_ours else 1.0)
        self._oom_kills = machine.oom_kills()
        self._outside = SeenFromOutside()
        self._asked: float | None = None
        self._has_concluded = False
        self._cpu: dict[int, tuple[float, float]] = {}
        """When each process came to what it is at, and the processor time that it had used by then."""
        self._long: dict[tuple[int, str], Stuck] = {}
        self._looks = self._locked = 0
        self._stderr = directory.parent / record_files.STDERR
        self._stderr_from = self._stderr.stat().st_size if self._stderr.exists() else 0

    @property
    def title(self) -> str:
        plan = self._plan
        engine = "torch's loader" if plan.engine == "torch" else "antifreeze"
        workers = {0: "no workers", 1: "1 worker"}.get(plan.workers, f"{plan.workers} workers")
        if plan.purpose == "epoch":
            return "beginning a second epoch"
        if plan.purpose == "deadly":
            return "fetching once more what a worker did not survive"
        if plan.purpose == "orphans":
            return "what becomes of the workers if the trainer is killed"
        return f"trying {engine}, {workers}" + (" (as written)" if plan.is_as_written else "")

    @property
    def _pid(self) -> int:
        return self._start.pid

    # --- looking

    def look(self) -> None:
        state = record_files.read_state(record_files.trainer_state(self.directory))
        if state is None or state.stage == "ended":
            self.conclude()
            return
        if self._asked is not None:
            self._see_to_its_end(state)
            return
        look = self._take_look(state)
        self._look_at_long_ones(look)
        if self._plan.purpose == "orphans":
            self._orphan(look)
            return
        verdict = self._detector.judge(look)
        if state.stage == "shutdown":
            if look.now - state.since > SHUTDOWN_S:
                self._kill_workers()
        elif verdict is not TrialVerdict.GOES_ON:
            self._end(look, verdict)

    def _take_look(self, state: ProcessState) -> TrialLook:
        now = time.monotonic()
        trainer = self._seen(self._pid, state, now)
        workers = {pid: self._seen(pid, known, now) for pid, known in self._workers() if runs(pid)}
        others = [pid for pid in self._target.pids() if pid != self._pid and pid not in workers]
        for pid in others:
            workers[pid] = self._seen(pid, None, now)
        return TrialLook(now=now, trainer=trainer, workers=tuple(workers.values()), has_lost_results=self._has_lost())

    def _workers(self) -> Iterator[tuple[int, ProcessState]]:
        for files in record_files.worker_files(self.directory):
            state = record_files.read_state(files.state)
            if state is not None:
                yield files.pid, state

    def _seen(self, pid: int, state: ProcessState | None, now: float) -> ProcessSeen:
        facts = machine.process_facts(pid)
        cpu_s = facts.cpu_s if facts else 0.0
        if state is None:
            return ProcessSeen(pid=pid, stage="", cpu_s=cpu_s)
        if pid not in self._cpu or self._cpu[pid][0] != state.since:
            self._cpu[pid] = state.since, cpu_s
        if state.stage == "fetch" and pid != self._pid:
            self._looks += 1
            self._locked += facts is not None and facts.waits_in == "lock"
        return ProcessSeen(
            pid=pid,
            stage=state.stage,
            since=state.since,
            samples=state.samples,
            batches=state.batches,
            slowest_s=state.slowest_s,
            cpu_s=cpu_s,
        )

    def _has_lost(self) -> bool:
        """Whether a worker has noted that a result could not be sent."""
        return any(
            record_files.has_record(files.log, UnsentResult) for files in record_files.worker_files(self.directory)
        )

    def _look_at_long_ones(self, look: TrialLook) -> None:
        for seen in look.workers:
            if seen.stage == "fetch" and look.now - seen.since > LONG_S and len(self._long) < MOST_LONG:
                state = next((state for pid, state in self._workers() if pid == seen.pid), None)
                if state is not None and (seen.pid, state.sample) not in self._long:
                    for stuck in self._pictures(only=seen.pid):
                        self._long[seen.pid, state.sample] = stuck

    def give_up(self) -> None:
        """The time for all is over: what does not seem to go on any more is called a hang."""
        state = record_files.read_state(record_files.trainer_state(self.directory))
        if state is None or state.stage in ("ended", "shutdown") or self._asked is not None or not runs(self._pid):
            return
        look = self._take_look(state)
        patience_s = OURS_AT_THE_END_S if self._plan.engine == "antifreeze" else BLOCKED_AT_THE_END_S
        is_blocked = self._detector.blocked_s(look) >= patience_s
        self._outside = replace(self._outside, is_cut_short=not is_blocked)
        self._write_down(look, TrialVerdict.HANGS if is_blocked else TrialVerdict.TAKES_LONG)

    # --- acting

    def _end(self, look: TrialLook, verdict: TrialVerdict) -> None:
        """Write down what is seen, and have the trainer end the trial."""
        self._write_down(look, verdict)
        self._asked = time.monotonic()
        if self._start.can_end:
            ask(self._pid, record_files.END_SIGNAL)
        else:
            self._kill_trainer()

    def _write_down(self, look: TrialLook, verdict: TrialVerdict) -> None:
        seconds = look.now - self._start.began
        self._write(replace(self._outside, verdict=verdict, seconds=seconds, stuck=tuple(self._pictures())))

    def _see_to_its_end(self, state: ProcessState) -> None:
        assert self._asked is not None
        now = time.monotonic()
        if state.stage == "shutdown":
            if now - state.since > SHUTDOWN_S:
                self._kill_workers()
        elif now - self._asked > ANSWER_S and state.since < self._asked:
            self._kill_trainer()

    def _kill_workers(self) -> None:
        for pid, _ in self._workers():
            kill(pid)

    def _kill_trainer(self) -> None:
        """And see which workers live on."""
        kill(self._pid)
        deadline = time.monotonic() + ORPHANED_S
        while time.monotonic() < deadline and any(runs(pid) for pid, _ in self._workers()):
            time.sleep(0.1)
        orphans = [stuck for stuck in self._pictures() if stuck.role == "worker" and stuck.stage == "fetch"]
        self._write(replace(self._outside, orphans=tuple(orphans)))

    def _orphan(self, look: TrialLook) -> None:
        at_work = [seen for seen in look.workers if seen.stage == "fetch" and look.now - seen.since > ORPHANED_S]
        is_late = look.now - self._start.began > LATE_S
        if is_late or (at_work and look.now - look.trainer.since > ORPHANED_S):
            self._kill_trainer()

    def conclude(self, *, exitcode: int | None = None) -> None:
        """The trial is over, or all is."""
        if self._has_concluded:
            return
        self._has_concluded = True
        state = record_files.read_state(record_files.trainer_state(self.directory))
        kills = machine.oom_kills()
        has_trainer_ended = not runs(self._pid) and (state is None or state.stage != "ended")
        seconds = self._outside.seconds
        self._write(
            replace(
                self._outside,
                seconds=time.monotonic() - self._start.began if seconds is None else seconds,
                long=tuple(self._long.values()),
                lock_share=self._locked / self._looks if self._looks >= FEWEST_LOOKS else None,
                has_trainer_ended=has_trainer_ended,
                exitcode=exitcode if has_trainer_ended else None,
                is_oom=None if kills is None or self._oom_kills is None else kills > self._oom_kills,
                stderr=self._said(),
            )
        )

    def _said(self) -> str:
        try:
            with self._stderr.open("rb") as file:
                file.seek(self._stderr_from)
                return file.read().decode(errors="replace")[-MOST_CHARACTERS:]
        except OSError:
            return ""

    def _write(self, seen: SeenFromOutside) -> None:
        self._outside = seen
        record_files.write_whole(self.directory / record_files.OUTSIDE, seen)

    # --- pictures

    def _pictures(self, *, only: int | None = None) -> Iterator[Stuck]:
        """How the processes of the trial are, the workers first: they are what the trainer waits for."""
        for files in record_files.worker_files(self.directory):
            if only in (None, files.pid) and runs(files.pid):
                yield from self._picture(files.pid, files)
        if only is None and runs(self._pid):
            yield from self._picture(self._pid, None)

    def _picture(self, pid: int, worker: record_files.WorkerFiles | None) -> Iterator[Stuck]:
        since, cpu_s = self._cpu.get(pid, (time.monotonic(), 0.0))
        yield from stuck_process(
            pid,
            role="worker" if worker else "trainer",
            places=self._places,
            worker=worker.worker if worker else None,
            state=record_files.read_state(worker.state if worker else record_files.trainer_state(self.directory)),
            since=since,
            cpu_before_s=cpu_s,
            written_to=worker.crash if worker else record_files.trainer_crash(self.directory),
        )
