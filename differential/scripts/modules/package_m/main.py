"""A package that is run by `python -m tool`, with relative imports."""
# command: -m tool
