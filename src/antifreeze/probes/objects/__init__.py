"""The live objects of a target: its loader, caught in its own process before workers start.

The program must not notice. What can be read without asking objects is read in place; what runs code of the user's
(`len`, `__reduce__`) runs in a forked copy of the program, which is thrown away (`double.py`).
"""

from antifreeze.probes.objects.look import look_at

__all__ = ["look_at"]
