"""Remote segments as columns: ids, offsets, leader epochs, and the indexes over them.

Private to `state`, but for code that reads a partition's live segments as columns.
"""
