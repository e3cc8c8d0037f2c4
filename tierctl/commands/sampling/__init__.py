"""What `verify` reads of segments: random samples, and the record of the reads in the state directory.

Exports nothing: import `deep_reads`.
"""
