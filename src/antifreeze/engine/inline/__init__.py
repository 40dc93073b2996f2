"""Batches made in the trainer's own process, each as a worker would have made it (decision 18)."""
