"""Every option, from a keyword argument or from the environment, checked where it is read.

The environment is read each time somebody asks, so that a program may set a variable after it has imported us.
"""

from antifreeze.settings.arguments import Seeding, arguments, bequeath
from antifreeze.settings.options import ALL_BLOCKED_S, ONE_BLOCKED_S, Options, options_of
from antifreeze.settings.policy import DEFAULT_MAX_LOST, OnError, Policy, Retry, Then
from antifreeze.settings.switch import OLDEST_TORCH, Mode, mode
from antifreeze.settings.variables import environment, parse_span, read_variable

__all__ = [
    "ALL_BLOCKED_S",
    "DEFAULT_MAX_LOST",
    "OLDEST_TORCH",
    "ONE_BLOCKED_S",
    "Mode",
    "OnError",
    "Options",
    "Policy",
    "Retry",
    "Seeding",
    "Then",
    "arguments",
    "bequeath",
    "environment",
    "mode",
    "options_of",
    "parse_span",
    "read_variable",
]
