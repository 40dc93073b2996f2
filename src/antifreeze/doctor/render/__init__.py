"""What was found, in the forms that it is read in: text for people, JSON for programs, annotations for GitHub. Pure."""
