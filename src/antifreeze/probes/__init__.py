"""What the doctor asks with: each probe looks in one place, and gives facts."""
