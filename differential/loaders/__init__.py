"""Random loaders: a seed makes a `Case` (case.py), and `play.py` plays it and writes down what a user can see of it.

`lane.py` is the process in which cases are played, one forked process for each. Everything that a case is built from is
importable by name (samples.py, datasets.py, parts.py), so that spawned workers can have it.
"""
