"""Live handles that are born in the worker: one small file per kind, all listed in `registry.py`."""
