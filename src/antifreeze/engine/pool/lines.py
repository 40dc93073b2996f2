"""All that a wait is over, and whose it is: channels and process descriptors of workers, control channels of stems.

A wait may be for one worker alone: then the others' messages stay where they are, for to be woken for each of them costs
both sides more than a small batch does. Deaths, and room to send in, end a wait in any case.
"""

from __future__ import annotations

import select

from antifreeze.engine.backends.base import StemHandle
from antifreeze.engine.pool.worker import Worker


class Lines:
    """What can be heard, by descriptor."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.poll = self._poll.poll
        """Wait for so many milliseconds: what has become readable, or writable."""
        self.channels: dict[int, Worker] = {}
        self.pidfds: dict[int, Worker] = {}
        self.stems: dict[int, StemHandle] = {}
        self._awaited: Worker | None = None

    def await_only(self, worker: Worker | None) -> None:
        """From now on, this worker's messages end a wait; None: everybody's."""
        before = self._awaited
        if worker is before:
            return
        self._awaited = worker
        if before is None or worker is None:
            for each in self.channels.values():
                self.listen_to(each)
        else:
            self.listen_to(before)
            self.listen_to(worker)

    def poll_apart(self, timeout_s: float) -> list[tuple[int, int]]:
        """As `poll`, for all workers; also while another `poll` is under way, which a signal handler has interrupted."""
        poll = select.poll()
        for fd, worker in self.channels.items():
            poll.register(fd, select.POLLIN | (select.POLLOUT if worker.channel.has_unsent else 0))
        for fd in (*self.pidfds, *self.stems):
            poll.register(fd, select.POLLIN)
        return poll.poll(max(0.0, timeout_s) * 1000)

    def add_worker(self, worker: Worker) -> None:
        """Its channel, from the moment that it is asked for."""
        self.channels[worker.channel.fileno()] = worker
        self.listen_to(worker)

    def add_birth(self, worker: Worker, pidfd: int) -> None:
        """Its process, which will end."""
        self.pidfds[pidfd] = worker
        self._poll.register(pidfd, select.POLLIN)

    def add_stem(self, stem: StemHandle) -> None:
        """Both ways of hearing from a stem: what it says, and that it has ended."""
        for fd in (stem.control.fileno(), stem.pidfd):
            self.stems[fd] = stem
            self._poll.register(fd, select.POLLIN)

    def can_hear(self, worker: Worker) -> bool:
        """Whether its channel is open, as far as we know."""
        return worker.channel.fileno() in self.channels

    def listen_to(self, worker: Worker) -> None:
        """For what it says, if it is awaited, and for room, if there is something left to send to it."""
        if self.can_hear(worker):  # else there is nothing more to hear from it
            listens = self._awaited is None or self._awaited is worker
            sends = worker.channel.has_unsent
            self._poll.register(
                worker.channel.fileno(), (select.POLLIN if listens else 0) | (select.POLLOUT if sends else 0)
            )

    def drop_channel(self, worker: Worker) -> None:
        """There is nothing more to hear from this worker but its end."""
        fd = worker.channel.fileno()
        if self.channels.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def drop_pidfd(self, pidfd: int) -> None:
        """This process has ended."""
        self._poll.unregister(pidfd)
        del self.pidfds[pidfd]

    def drop_stem(self, stem: StemHandle) -> None:
        """This stem has ended."""
        for fd in (stem.control.fileno(), stem.pidfd):
            self._poll.unregister(fd)
            del self.stems[fd]


def wait_readable(fd: int, *, timeout_s: float) -> None:
    """Wait for one descriptor alone."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(timeout_s * 1000)
