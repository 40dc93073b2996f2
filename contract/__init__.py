"""PyTorch's own tests of its DataLoader, with our class in place of torch's: `python -m contract SUITE`."""
