"""Looks at a program that is running now, from outside, and changes nothing in it.

`family` finds its processes, `spy` their Python stacks, `classify_stack` makes sense of these, `program`
looks several times, and `snapshot` makes the picture; `rights` says what is in the way where there is nothing to see.
"""

from antifreeze.probes.processes.program import look_at_program

__all__ = ["look_at_program"]
