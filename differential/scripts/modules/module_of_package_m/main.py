"""A module of a package that is run by `python -m tool.train`, and asks what it was run as."""
# command: -m tool.train
