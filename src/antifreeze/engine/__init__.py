"""How a batch is made; start reading in `epoch.py`."""
