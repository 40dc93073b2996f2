"""What is loaded, in which order, by whom: pure."""
