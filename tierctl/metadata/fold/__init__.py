"""The fold of the metadata topic: reads metadata partitions and folds their events into a state.

Other packages use `PartitionFold`, and `FoldRunner` with its tasks where partitions are folded in parallel.
"""
