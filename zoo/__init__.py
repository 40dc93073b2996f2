"""Our programs around the zoo, a collection of broken training scripts that is not ours: `python -m zoo.score`."""
