"""Tests of the command line: real processes."""
