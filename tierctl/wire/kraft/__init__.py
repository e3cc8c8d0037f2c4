"""KRaft's cluster metadata, as far as a new cluster is given topics: records, and the file that has them.

`records` encodes and recognises single records, `bootstrap` reads and extends a controller's bootstrap file.
"""
