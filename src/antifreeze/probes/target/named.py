"""A loader by its name: `python -m antifreeze.probes.target.named package.module:loader`.

Imports the module as the program's own directory would have it, takes the loader, or has a function make it, and iterates
it; that first iteration is what the doctor waits for.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import os
import sys
from typing import TYPE_CHECKING, Any

from antifreeze.errors import ConfigError

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def main(name: str) -> None:
    """Find the loader and take its first batch."""
    iterator = iter(find_loader(name))
    next(iterator, None)


def find_loader(name: str) -> DataLoader[Any]:
    """The loader that `module:attribute` stands for; ConfigError if there is none."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"{name!r} does not name a loader", try_="package.module:loader")
    found = _made(_attribute(_imported(module), attribute, name), name)
    # Not before the user's module: which of two libraries is imported first decides whose OpenMP both use.
    from torch.utils.data import DataLoader  # noqa: PLC0415

    if not isinstance(found, DataLoader):
        raise ConfigError(
            f"{name} is not a DataLoader, but a {type(found).__qualname__}",
            try_="name a torch.utils.data.DataLoader, or a function without arguments that returns one",
        )
    return found


def _imported(module: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise ConfigError(f"there is no module {module}", where=f"in {here}, or installed") from None


def _attribute(module: Any, attribute: str, name: str) -> Any:
    try:
        return operator.attrgetter(attribute)(module)
    except AttributeError as error:
        raise ConfigError(f"there is no {name}", why=str(error)) from None


def _made(found: Any, name: str) -> Any:
    """What a function makes; what is no function is as it is."""
    if not inspect.isfunction(found):
        return found
    needed = [
        parameter.name
        for parameter in inspect.signature(found).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise ConfigError(
            f"{name} is a function that needs arguments: {', '.join(needed)}",
            try_="name a loader, or a function without arguments that returns one",
        )
    return found()


if __name__ == "__main__":
    main(sys.argv[1])
