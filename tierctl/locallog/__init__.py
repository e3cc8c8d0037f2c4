"""A broker's log directories: topics, segments, epochs, LSO."""
