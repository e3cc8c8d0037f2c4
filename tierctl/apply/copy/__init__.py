"""Copying segments to a tier: where the bytes come from, the upload of one segment, and the waves.

Other packages use `LogSources`, `TierSources` and the protocol `Sources`.
"""
