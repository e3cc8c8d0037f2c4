"""The state that a broker derives from metadata events, as columns: no input or output.

Other packages use `tier_state.TierState`, `lineage.Lineage`, `lineage.RemoteLogMetadataCache` and the fold.
"""
