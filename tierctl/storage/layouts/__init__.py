"""Layouts: names and encodings of a segment's objects, as LocalTieredStorage and Aiven's plugin write them.

Each layout works on every store; other packages use `kafka.segment_object_name` for the keys of listed
objects.
"""
