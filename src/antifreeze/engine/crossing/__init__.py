"""How objects reach a worker that did not inherit them, and how results come back."""
