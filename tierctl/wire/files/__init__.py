"""Codecs of the files of a broker's log directory and of the state directory.

One module per kind of file: indexes, checkpoints, producer snapshots, flat files, committed offsets.
"""
