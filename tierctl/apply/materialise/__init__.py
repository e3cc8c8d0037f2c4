"""Carry out the steps of a materialisation: write segments of the tier as the local log of stopped brokers.

`segments` writes the files of one segment, `partition` those of a whole log, and puts it in its place.
"""
