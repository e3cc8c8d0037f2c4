"""Reports of executors, for `doctor`: versions, the sources that they reach, and who wrote events."""
