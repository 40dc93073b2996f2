"""Runs a program up to its first batch and has its loaders tried there: started, watched and ended from outside."""
