"""The columns of one user partition's segments, and the indexes of their ids and leader epochs.

The parts of RemoteLogMetadataCache; other packages read columns through `state.live_segments`.
"""
