"""Records from the tier by offset or time."""
