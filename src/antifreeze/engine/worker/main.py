"""The worker: receive a ticket, make its batch, report; until told to leave.

It talks to the trainer alone, over a channel of its own: no queue, no lock and no thread is shared with another worker.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator

from antifreeze.engine.arena.board import Board
from antifreeze.engine.numbers import WorkerNo
from antifreeze.engine.wire.channel import Channel, ChannelClosed
from antifreeze.engine.wire.messages import Begin, Ended, Leave, Resume, Returned, Spent, Tell, Told, Withdraw, Work
from antifreeze.engine.worker.bench import Workbench
from antifreeze.engine.worker.recipe import Recipe
from antifreeze.engine.worker.renewal import Heritage, Renewed
from antifreeze.engine.worker.stream_bench import StreamBench
from antifreeze.engine.worker.ticket_bench import TicketBench
from antifreeze.errors import InternalError


def run_worker(channel: Channel, board: Board, recipe: Recipe, worker: WorkerNo, heritage: Heritage) -> None:
    """A worker's whole life after its birth as a process."""
    workbench = bench_for(recipe)(recipe, worker, board, heritage)
    ordered = orders(channel, workbench)
    try:
        for order, descriptors in ordered:
            if isinstance(order, Begin):
                workbench.begin_pass(order)
                continue
            if isinstance(order, Tell):
                channel.send_all(Told(order.ticket, workbench.first_mark()))
                continue
            if order.is_replay:
                workbench.replay(order)
                continue
            answer, made = workbench.carry_out(order, descriptors)
            if recipe.is_marked and (recipe.marks_all or isinstance(answer, Ended)):
                answer = answer._replace(mark=workbench.mark())
            elif order.is_marked:
                answer = answer._replace(mark=workbench.mark_if_quick())
            shared = workbench.take_shared()
            channel.send_all(answer, [made.fd, *shared] if made else shared)
            workbench.stopwatch.sent()
            if made:
                made.close_descriptor()
            for fd in shared:
                os.close(fd)
            workbench.rest()
    except ChannelClosed:
        return
    except Renewed as renewed:
        with contextlib.suppress(ChannelClosed):
            channel.send_all(Spent(renewed.copied_bytes, renewed.grown_bytes))
            for _ in ordered:
                pass  # until the trainer says to leave: nobody is to find a process gone while his own code runs
    finally:
        workbench.stopwatch.write()
        workbench.leave()


def bench_for(recipe: Recipe) -> type[Workbench]:
    """The kind of bench that makes batches by this recipe."""
    if recipe.is_stream:
        return StreamBench
    return TicketBench if recipe.by_ticket else Workbench


def orders(channel: Channel, workbench: Workbench) -> Iterator[tuple[Work | Begin | Tell, list[int]]]:
    """What there is to do, until the trainer says to leave: then nothing more, also of what had been ordered before."""
    waiting: deque[tuple[Work | Begin | Tell, list[int]]] = deque()
    while True:
        if waiting and not channel.has_unread:
            yield waiting.popleft()
            continue
        match channel.receive():
            case None:
                pass  # a slice has passed
            case (Work() | Begin() | Tell() as order, descriptors):
                waiting.append((order, descriptors))
            case (Resume(state), _):
                workbench.resume(state)
            case (Withdraw(ticket), _):
                for order, descriptors in waiting:
                    if isinstance(order, Work) and order.ticket == ticket:  # else it has been begun, or done
                        waiting.remove((order, descriptors))
                        workbench.accept(order, descriptors)
                        channel.send_all(Returned(ticket))
                        break
            case (Leave(), _):
                return
            case (message, _):
                raise InternalError(f"a worker cannot make sense of {message!r}")
