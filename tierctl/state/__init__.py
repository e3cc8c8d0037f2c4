"""The state that a broker derives from metadata events, as columns: no input or output.

Other packages use `cache.RemoteLogMetadataCache`, `tier_state.TierState`, `lineage.Lineage` and the fold.
"""
