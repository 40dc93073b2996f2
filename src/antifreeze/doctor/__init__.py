"""The doctor: names the cause of a loader that hangs, crashes or crawls, from facts about it."""
