"""All that runs in a worker, and nothing that does not."""
