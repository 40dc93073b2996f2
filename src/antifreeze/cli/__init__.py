"""The command line: a thin shell that parses, calls, prints and sets the exit status; one command per file.

It starts without torch.
"""
