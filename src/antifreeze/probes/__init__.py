"""What asks the machine, the source, the live objects and the running program: questions → facts."""
