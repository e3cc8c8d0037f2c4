"""Files of a broker's log directory and of the state directory: bytes to values and back.

Indexes, checkpoints, producer snapshots, flat files, committed offsets, `.remoteindex`.
"""
