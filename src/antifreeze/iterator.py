"""Our iterator: torch's iterator to everybody who looks, our engine inside.

It is a subclass of torch's, so that every `isinstance` stays true, and it falls back to being exactly that whenever the
engine does not carry a loader (yet): the reason is said once, or raised if `ANTIFREEZE=require`.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from multiprocessing import context as contexts
from multiprocessing import process
from typing import Any

import torch

from antifreeze import machine
from antifreeze.engine.arena.arena import Arena
from antifreeze.engine.backends import interruptions
from antifreeze.engine.backends.executable import why_no_fresh_process
from antifreeze.engine.backends.start import OnlyInProcess, start_stem
from antifreeze.engine.epoch import Epoch
from antifreeze.engine.inline.bench import InlineBench
from antifreeze.engine.inline.epoch import InlineEpoch, start_inline
from antifreeze.engine.marks import Marks
from antifreeze.engine.pinning import Device, Pinner
from antifreeze.engine.pool.ending import STOP_DEADLINE_S, end_thread_if_the_program_ends
from antifreeze.engine.pool.pool import Pool
from antifreeze.engine.seclusion import Secluded, draws_at_once
from antifreeze.engine.showing import show
from antifreeze.engine.staleness import describe, difference
from antifreeze.engine.turns import Turn, new_turn
from antifreeze.engine.witness import Witness
from antifreeze.engine.worker.kinds import global_state, restore_global
from antifreeze.engine.worker.recipe import Identity, Recipe
from antifreeze.errors import CannotCross, ConfigError, Fallback
from antifreeze.observe import usage
from antifreeze.observe.accounts import account_of
from antifreeze.observe.ledger import Kind
from antifreeze.observe.say import say_once
from antifreeze.options import Mode, Options, arguments, mode, options_of
from antifreeze.torch_side import self_check
from antifreeze.torch_side.compiler import skip_our_code
from antifreeze.torch_side.loaders import (
    BaseIterator,
    WorkersIterator,
    auto_collates,
    is_pipe,
    is_profiled,
    is_stream,
    reset_base,
    share_out_pipe,
)

_clock = time.perf_counter

# By then each worker has made several batches, and what it has noticed says something.
LOOK_AFTER = 6
RE_ENTERED = "a signal handler has used an iterator that this thread was taking a batch from"
_NONE = object()
# Shared memory for batches: this share of what is available, divided among the ranks of this machine.
BUDGET_SHARE = 4


class Iterator(WorkersIterator):
    """One pass over the data (or several, if workers are kept), carried by our engine wherever that can be."""

    _epoch: Epoch | InlineEpoch | None = None
    _turn: Turn = None
    """Held by the thread that uses the iterator."""
    _is_under_way = False
    """Whether the thread that has the turn takes a batch, or begins a pass."""
    _is_to_be_shut_down = False
    """Whether that is left to the thread that takes a batch now."""
    _draws: _Draws | None = None
    """Those of starting workers, until the first pass has begun."""
    _is_stock = False
    _is_ours = True  # looked for in the class itself: a class that others derive from it is theirs

    def __init__(self, loader: Any) -> None:
        skip_our_code()
        if mode() is Mode.OFF:
            self._run_stock(loader, "ANTIFREEZE=0")
            return
        reason = why_not(loader, type(self))
        if reason is not None:
            self._fall_back(loader, reason)
            return
        self._turn = new_turn()
        try:
            draws = self._draws = _Draws(loader)
            fault = self._try_to_start(loader)
            if fault is not None:
                draws.undo()
                self._fall_back(loader, f"starting workers failed: {fault}")
                return
            usage.record(engine="antifreeze", stem=self._stem_kind, reason=self._stem_reason)
            self._reset(loader, first_iter=True)
        except BaseException:
            if not self._is_stock:
                self._shutdown_workers()  # now, and not when the traceback that holds us is dropped
            raise

    def _try_to_start(self, loader: Any) -> str | None:
        """Bring the workers up; a fault of ours is only told, for it must not stop a training that torch would carry."""
        with interruptions.held():
            try:
                self._start(loader)
            except BaseException as error:  # of whatever kind: nothing of ours may be left
                self._shutdown_workers()
                interruption = interruptions.behind(error)  # what the program does about a signal is no fault of ours
                if interruption is not None and interruption is not error:
                    raise interruption from None
                is_the_users = isinstance(error, CannotCross | ConfigError) or interruption is not None
                if is_the_users or not isinstance(error, Exception) or mode() is Mode.REQUIRE:
                    raise
                return show(error)
        return None

    def _start(self, loader: Any) -> None:
        interruptions.let_through(functools.partial(BaseIterator.__init__, self, loader))  # asks the sampler
        self._prefetch_factor = loader.prefetch_factor
        assert self._prefetch_factor > 0, "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"
        self._in_order = loader.in_order
        self._worker_init_fn = loader.worker_init_fn
        if is_pipe(self._dataset):  # whose parts are shared out by torch itself
            self._worker_init_fn = functools.partial(
                share_out_pipe, loader.worker_init_fn, self._world_size, self._rank
            )
        window = loader.prefetch_factor * loader.num_workers
        arena = Arena(window=window, budget_bytes=_budget_bytes())
        options, account = options_of(loader), account_of(loader)
        recipe, start_method = self._recipe(loader, options), _start_method(loader)
        self._by_ticket = recipe.by_ticket
        self._traits: dict[str, Any] = {}
        with interruptions.held():
            self._look_at = LOOK_AFTER * loader.num_workers
            self._tally = account.tally
            self._tally.begin(_clock())
            try:
                if account.stays_here is not None:
                    raise OnlyInProcess(account.stays_here)
                grow = functools.partial(start_stem, recipe, start_method, account.ledger)
                pool = Pool(grow, workers=loader.num_workers, turn=self._turn)
            except OnlyInProcess as why:
                self._start_in_process(loader, recipe, arena, window, str(why))
                return
            self._stem_kind, self._stem_reason = pool.stem.kind, pool.stem.risk
            self._workers = pool.workers  # type: ignore[assignment]  # process-like is all that clients ask for
            try:
                if loader.persistent_workers:  # by now, what had to be shared with spawned workers is shared
                    self._traits = describe(self._dataset)
                self._epoch = Epoch(
                    pool,
                    arena,
                    window=window,
                    account=account,
                    options=options,
                    witness=Witness(),
                    timeout_s=loader.timeout,
                    in_order=loader.in_order,
                    is_stream=recipe.is_stream,
                    by_ticket=recipe.by_ticket,
                    is_batched=recipe.auto_collation,
                    pinner=self._make_pinner(),
                    make_bench=functools.partial(InlineBench, recipe, quarantined=account.quarantined),
                    marks=self._make_marks(loader),
                )
            except BaseException:
                pool.stop()  # which nobody else knows of
                raise
            self._shutdown = False

    def _start_in_process(self, loader: Any, recipe: Recipe, arena: Arena, window: int, why: str) -> None:
        account = account_of(loader)
        self._stem_kind, self._stem_reason = "in-process", why
        self._workers = []
        self._epoch = start_inline(
            recipe,
            arena,
            window=window,
            options=options_of(loader),
            account=account,
            in_order=loader.in_order,
            timeout_s=loader.timeout,
            pinner=self._make_pinner(),
        )
        self._shutdown = False
        what = f"batches are loaded in this process, without workers: {why}"
        account.ledger.add(Kind.IN_PROCESS, what, code="AF101")
        say_once(what)

    def _make_pinner(self) -> Pinner | None:
        if not self._pin_memory:
            return None
        pinner = Pinner(Device(self._pin_memory_device, torch.accelerator.current_device_index()))
        self._pin_memory_thread = pinner.thread
        return pinner

    def _make_marks(self, loader: Any) -> Marks | None:
        """Nobody wants to know where workers are."""
        return None

    def _recipe(self, loader: Any, options: Options) -> Recipe:
        return Recipe(
            dataset=self._dataset,
            collate_fn=loader.collate_fn,
            auto_collation=auto_collates(loader),
            worker_init_fn=self._worker_init_fn,
            base_seed=int(self._base_seed),
            num_workers=loader.num_workers,
            worker_threads=options.worker_threads,
            policy=options.policy,
            is_stream=is_stream(self),
            drop_last=loader.drop_last,
            fixes=options.fix,
            by_ticket=options.seeding == "ticket",
            shared_seed=self._shared_seed,
            identity=_identity(loader),
        )

    def _fall_back(self, loader: Any, reason: str) -> None:
        say_fallback(loader, reason)
        self._be_stock(loader)

    def _run_stock(self, loader: Any, reason: str) -> None:
        say_if_not_in_force(loader)
        usage.record(engine="torch", stem=None, reason=reason)
        self._be_stock(loader)

    def _be_stock(self, loader: Any) -> None:
        self._epoch = None
        self._is_stock = True
        super().__init__(loader)

    def __next__(self) -> Any:
        if self._epoch is None:
            return super().__next__()
        data: Any = _NONE
        try:
            with self._turn:
                end_thread_if_the_program_ends()
                if self._is_under_way and self._is_re_entered():
                    raise RuntimeError(RE_ENTERED)
                self._is_under_way = True
                try:
                    data = self._next_in_turn()
                finally:
                    self._is_under_way = False
        except StopIteration:
            raise
        except BaseException as error:
            if data is not _NONE and self._epoch is not None:  # a signal came while the turn was given back
                self._epoch.tear(error)
            if self._is_to_be_shut_down:
                self._shutdown_workers()
            end_thread_if_the_program_ends()
            raise
        if self._is_to_be_shut_down:
            self._shutdown_workers()
        return data

    def _is_re_entered(self) -> bool:
        """Whether a signal handler has interrupted this thread; if not, another thread was here, which a fork has ended."""
        return self._epoch is not None and not self._epoch.is_abandoned

    def _next_in_turn(self) -> Any:
        # torch's own __next__ is for its profiler, which costs as much as a small batch.
        # It also warns of an iterable dataset that gives more than its length says.
        if is_profiled() or self._IterableDataset_len_called is not None:
            return super().__next__()
        assert self._epoch is not None
        asked = _clock()
        try:
            data = self._next_data()
            self._tally.note_batch(asked, _clock())
            self._num_yielded += 1
            if self._num_yielded == self._look_at:
                self._epoch.misgivings.look()
            return data
        except BaseException as error:
            self._epoch.tear(error)  # unless it is meant
            self._tally.note_none(asked, _clock())
            raise

    def _next_data(self) -> Any:
        if self._epoch is None:
            return super()._next_data()  # type: ignore[no-untyped-call]
        try:
            return self._epoch.next_batch()
        except StopIteration:
            self._end_pass()
            raise
        except BaseException as error:  # a fault of ours costs the workers, and not the epoch
            substitute = self._epoch.hand_over(error) if isinstance(error, Exception) else None
            if substitute is None:
                self._epoch.tear(error)  # unless it is meant; also for torch's own __next__, under its profiler
                raise
            self._epoch = substitute
        return self._next_data()

    def _end_pass(self) -> None:
        assert self._epoch is not None
        self._epoch.misgivings.look()
        if not self._persistent_workers:
            self._close_epoch()

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if self._epoch is None:
            super()._reset(loader, first_iter)
            return
        skip_our_code()
        with self._turn:
            if self._is_under_way and self._is_re_entered():
                raise RuntimeError(RE_ENTERED)
            self._reset_in_turn(loader, first_iter)

    def _reset_in_turn(self, loader: Any, first_iter: bool) -> None:
        assert self._epoch is not None
        draws, self._draws = self._draws or _Draws(loader), None
        # Kept workers that were lost, or do not know what the dataset has become: this epoch begins with new ones.
        were_lost = self._epoch.has_failed
        has_new_workers = were_lost or (not first_iter and self._is_stale(loader))
        if has_new_workers:
            self._shutdown_workers()
            fault = self._try_to_start(loader)
            if fault is not None:
                draws.undo()
                self._fall_back(loader, f"starting workers again failed: {fault}")
                return
            # Kept workers would have drawn no seeds now, and the sampler goes on from what was drawn. (With seeds of
            # tickets, and with data pipes, one is drawn for each pass in any case.)
            if were_lost and draws.can_be_undone and not self._by_ticket and not is_pipe(self._dataset):
                draws.undo()
        try:
            self._begin_pass(loader, is_first=first_iter or has_new_workers)
        except _CannotBegin as fault:
            self._shutdown_workers()
            if not draws.can_be_undone:
                raise fault.error from None
            draws.undo()
            self._fall_back(loader, f"beginning a pass failed: {show(fault.error)}")

    def _begin_pass(self, loader: Any, *, is_first: bool) -> None:
        assert self._epoch is not None
        # By ticket, the sampler is asked to begin once, however many workers there are, kept or not: it may draw at once.
        if not (self._by_ticket and is_first):  # else that has just been done
            reset_base(self, loader, is_first)
        # Not self._next_index: the epoch must not hold the iterator, whose end is the workers' end.
        next_index: Callable[[], Any] = functools.partial(interruptions.let_through, self._sampler_iter.__next__)
        seed = None
        if self._by_ticket:
            if not is_first:  # else it has just been drawn
                self._base_seed = draw_seed(loader)
            seed = int(self._base_seed)
            next_index = next_index if draws_at_once(self._index_sampler) else Secluded(next_index)
        self._begin(next_index, is_first=is_first, shared_seed=self._shared_seed, seed=seed)

    def _begin(self, next_index: Callable[[], Any], **how: Any) -> None:
        assert self._epoch is not None
        with interruptions.held():
            try:
                self._epoch.begin(next_index, **how)
            except Exception as error:
                if mode() is Mode.REQUIRE or not self._epoch.is_fault(error):
                    raise
                raise _CannotBegin(error) from error

    def _is_stale(self, loader: Any) -> bool:
        """Whether the dataset was changed since its workers were started, and the user wants that put right."""
        assert self._epoch is not None
        if isinstance(self._epoch, InlineEpoch):  # which reads the dataset as it is
            return False
        changed = difference(self._traits, describe(self._dataset))
        if changed is None:
            return False
        self._epoch.misgivings.note_stale(changed)
        return "stale" in options_of(loader).fix

    def _shutdown_workers(self) -> None:
        if self._is_stock:
            super()._shutdown_workers()
        elif self._epoch is not None and not self._shutdown:  # else it never came to life, or is over
            with interruptions.held():
                if not self._turn.acquire(blocking=False):  # another thread waits for a batch
                    self._epoch.ask_to_stop()
                    if not self._turn.acquire(timeout=STOP_DEADLINE_S):
                        self._is_to_be_shut_down = True  # that thread is in code of the user's
                        return
                try:
                    self._shut_down_in_turn()
                finally:
                    self._turn.release()

    def _shut_down_in_turn(self) -> None:
        if self._is_under_way and self._is_re_entered():  # this thread closes it when it comes out of `next`
            assert self._epoch is not None
            self._epoch.ask_to_stop()
            self._is_to_be_shut_down = True
        else:
            self._close_epoch()

    def _close_epoch(self) -> None:
        assert self._epoch is not None
        with interruptions.held():
            if not self._shutdown:
                self._epoch.close()
                self._shutdown = True
            self._is_to_be_shut_down = False

    def __del__(self) -> None:
        try:
            self._shutdown_workers()
        finally:  # again, if a signal came before it had begun: nobody else would end the workers
            self._shutdown_workers()


def why_not(loader: Any, iterator_type: type) -> str | None:
    """Why our engine cannot carry this loader; None if it can."""
    if not machine.is_linux():
        return "the engine runs on Linux only so far"
    if "_is_ours" not in vars(iterator_type):
        return f"{iterator_type.__qualname__} brings an iterator of its own"
    context = loader.multiprocessing_context
    is_default = context is None or context in _DEFAULT_CONTEXTS
    if not is_default and type(context) not in _STANDARD_CONTEXTS:
        return f"multiprocessing_context is a {type(context).__qualname__}"
    forks = _start_method(loader) == "fork"
    reason = None if forks else why_no_fresh_process()
    return reason or machine.why_not_again() or self_check.why_unfit(Iterator, may_fork=forks)


# fastai gives a module, whose functions are those of the default context.
_DEFAULT_CONTEXTS = (multiprocessing, torch.multiprocessing)


_STANDARD_CONTEXTS = tuple(
    getattr(contexts, name)
    for name in ("ForkContext", "SpawnContext", "ForkServerContext", "DefaultContext")
    if hasattr(contexts, name)
)


def _start_method(loader: Any) -> str:
    """How torch would start workers; asking must not settle the program's default, as torch's asking does."""
    context = loader.multiprocessing_context or multiprocessing
    return context.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def _identity(loader: Any) -> Identity:
    """What torch's workers would be to `multiprocessing`; takes their numbers, as torch does."""
    kind = (loader.multiprocessing_context or multiprocessing).Process
    numbers = [next(process._process_counter) for _ in range(loader.num_workers)]  # type: ignore[attr-defined]
    return Identity(
        start_method=kind._start_method,
        kind=kind.__name__,
        parent=process.current_process()._identity,
        first=numbers[0],
        is_spawned=_start_method(loader) == "spawn",
    )


def _budget_bytes() -> int:
    given = os.environ.get("LOCAL_WORLD_SIZE", "")
    ranks = max(1, int(given)) if given.isdigit() else 1
    return machine.available_memory() // BUDGET_SHARE // ranks


def say_fallback(loader: Any, reason: str) -> None:
    """Say that a loader runs on torch's own iterator, and why; raise that if the engine is required."""
    usage.record(engine="torch", stem=None, reason=reason)
    if mode() is Mode.REQUIRE:
        raise Fallback(
            "ANTIFREEZE=require: this loader would run on torch's own iterator",
            why=reason,
            try_="ANTIFREEZE=1, which says so and goes on",
        )
    say_once(f"this loader runs on torch's own iterator: {reason}")
    say_if_not_in_force(loader)


def say_if_not_in_force(loader: Any) -> None:
    """A loader runs on torch's own iterator: its batches are others if they were to follow from their tickets."""
    if arguments(loader).get("seeding") == "ticket":
        say_once('seeding="ticket" is not in force: torch\'s own iterator gives other random numbers')


def has_data(variables: Mapping[str, Any]) -> bool:
    """Whether these, of `Iterator.__next__`, hold a batch that has not been returned yet."""
    return variables.get("data", _NONE) is not _NONE


def draw_seed(loader: Any) -> int:
    """What torch draws when it makes an iterator: the seed of a pass."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())


class _CannotBegin(Exception):
    """Our engine has failed to begin a pass, by no fault of the user's."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Draws:
    """The draws that starting an iterator makes, so that torch's iterator can make the same ones after us."""

    def __init__(self, loader: Any) -> None:
        samplers = [getattr(loader, name, None) for name in ("sampler", "batch_sampler")]
        holders = [loader, *samplers, getattr(samplers[1], "sampler", None)]
        generators = [getattr(holder, "generator", None) for holder in holders]
        self._held = [(each, each.get_state()) for each in generators if isinstance(each, torch.Generator)]
        self._shared = global_state()
        self.can_be_undone = not any(hasattr(sampler, "__next__") for sampler in (*samplers, holders[-1]))
        """Whether samplers begin again with the same states of their generators."""

    def undo(self) -> None:
        for generator, state in self._held:
            generator.set_state(state)
        restore_global(*self._shared)
