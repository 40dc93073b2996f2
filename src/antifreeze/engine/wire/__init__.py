"""What trainer, stem and workers say to each other."""
