"""What is kept about a loader beyond its iterators: its ledger, its times, and the samples that it has given up.

In a table beside the loaders, not in them: clients copy, pickle and rebuild loaders by all that they find in them.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Hashable
from typing import Any, Protocol

from antifreeze.observe.beside import Beside
from antifreeze.observe.ledger import Ledger
from antifreeze.observe.report import end_line
from antifreeze.observe.say import say
from antifreeze.observe.statistics import Statistics, Tally
from antifreeze.options import options_of


class Source(Protocol):
    """Somebody who knows more than the tally does."""

    def read_times(self) -> None:
        """Add what there is to the tally."""


class Account:
    """One loader's."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.tally = Tally()
        self.sources: weakref.WeakSet[Source] = weakref.WeakSet()
        """The iterators that are running."""
        self.quarantined: set[Hashable] = set()
        """Indices that no worker survives: they are not fetched any more, in later epochs either."""
        self.stays_here: str | None = None
        """Why workers are of no use, if that has turned out."""

    def statistics(self) -> Statistics:
        """The numbers as they are now."""
        for source in list(self.sources):
            source.read_times()
        return self.tally.snapshot(self.ledger.counts)


_accounts: Beside[Account] = Beside()


def account_of(loader: Any) -> Account:
    """The account of this loader; opened when it is first asked for."""
    account = _accounts.get(loader)
    if account is None:
        options = options_of(loader)
        account = _accounts.keep(loader, Account(Ledger(options.ledger_file)))
        if options.stats:
            atexit.register(_summarise, account)
    return account


def share_account(account: Account, *, heir: Any) -> None:
    """Let a loader that was built from the pieces of another write into the account of that one."""
    if _accounts.get(heir) is None:
        _accounts.keep(heir, account)


def _summarise(account: Account) -> None:
    """The last line of a run, for those who asked for it."""
    say(end_line(account.statistics()))
