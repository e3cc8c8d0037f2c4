"""Records of user partitions from the tier and from brokers' logs, by offset or time.

Other packages read a `ReadableLog` by `PartitionReader`, or by tasks of `read.tasks`. The metadata state
that decides which segments are readable is in `tierctl.state`.
"""
