"""Ask the machine, the source, the live objects and running programs, and write down what they say as facts."""
