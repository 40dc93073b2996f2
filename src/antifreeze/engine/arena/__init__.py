"""The shared memory that batches travel in."""
