"""What asks the machine and its processes for the facts that the doctor's checks judge."""
