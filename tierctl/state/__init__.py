"""What a broker knows, from events alone: the metadata cache, leader-epoch lineage, offset invariants."""
