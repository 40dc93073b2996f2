"""Judging workers: pure decisions on evidence that others have gathered."""
