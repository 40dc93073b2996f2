"""`make chaos`: faults of every kind at every point of a worker's step, and every batch compared with torch's.

A *trial* is an epoch or two of a small dataset under a few faults. All of it is drawn from a seed and a number (`trial`).
Faults strike inside workers, from user code or from a hook on our own (`sabotage`), or from the trainer between two batches
(`strikes`). A trial is played (`play`) in a *lane*, a process of its own that plays one after the other (`lane`); what
came of it is judged from the ledger and the batches (`judge`). `__main__` runs the lanes, `page` writes
`docs/reliability.md`.
"""
