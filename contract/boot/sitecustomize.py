"""Runs at the start of every Python process below `python -m contract`: suites start scripts and spawn processes.

CONTRACT says whose loader is replaced by ours.
"""

import os

from contract.in_place import put

put(os.environ["CONTRACT"])
