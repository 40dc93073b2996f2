"""Runs the same programs on torch's DataLoader and on antifreeze, and compares all that a user can see.

Two kinds of programs are compared: random loaders (`loaders/`: a seed makes a dataset, a sampler, options and a way of
using them) and scripts as users write them (`scripts/`). Each difference must stand in the table in `declared.py`, with
its reason; any other one is a failure.

`python -m differential --help` says how to run it; docs/differential.md says what is compared.
"""
