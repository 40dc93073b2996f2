"""One check per file; `doctor/check.py` says what a check is, and how to add one."""

from importlib import import_module
from pkgutil import iter_modules

from antifreeze.doctor.check import REGISTERED

# Each registers its check when it is imported.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

CHECKS = tuple(sorted(REGISTERED, key=lambda check: check.code))
