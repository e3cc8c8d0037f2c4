"""The segments that `verify` reads: random samples, and the record of the reads in the state directory.

Exports nothing: import `deep_reads`.
"""
