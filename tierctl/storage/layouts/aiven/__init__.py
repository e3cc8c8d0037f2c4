"""Layout `aiven`: the objects that Aiven's tiered storage plugin writes, on every store.

Other packages open tiers of this layout with `tierctl.storage.open_tier.open_tier`.
"""
