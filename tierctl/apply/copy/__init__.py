"""Copying segments to a tier: the sources of the bytes, the upload of a segment, and waves of copies.

Other packages use `log_source.LogSources`, `tier_source.TierSources` and the protocol `source.Sources`.
"""
