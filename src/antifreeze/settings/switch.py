"""Whether our engine runs at all: the variable `ANTIFREEZE`, and the oldest torch that has what it needs."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping

from antifreeze.errors import ConfigError

OLDEST_TORCH = (2, 6)
"""For those who cannot ask torch itself, as `torch_side.self_check` does; with an older one, loaders run on torch's own
iterator."""


class Mode(enum.Enum):
    """What the environment wants of us."""

    OFF = "off"
    """Torch's own iterator, always."""
    ON = "on"
    """Our engine; torch's own iterator, with a warning, for what it does not carry."""
    REQUIRE = "require"
    """Our engine; an error that names the reason for what it does not carry."""


_MODES = {
    "0": Mode.OFF,
    "off": Mode.OFF,
    "": Mode.ON,
    "1": Mode.ON,
    "on": Mode.ON,
    "require": Mode.REQUIRE,
}


def mode(environ: Mapping[str, str] = os.environ) -> Mode:
    """Read the variable `ANTIFREEZE`."""
    word = environ.get("ANTIFREEZE", "")
    try:
        return _MODES[word]
    except KeyError:
        raise ConfigError(
            f"ANTIFREEZE={word} is not a mode of antifreeze",
            where="environment variable ANTIFREEZE",
            why="it can be 1 or on (the default), 0 or off, or require",
            try_="unset ANTIFREEZE",
        ) from None
