"""Tickets out, batches back: pure."""
