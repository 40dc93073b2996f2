"""The tests of other loaders, with our class in place of theirs: `python -m contract SUITE`."""
