"""`sweep`: delete the segments of the tier that retention or the log start offset expires."""
