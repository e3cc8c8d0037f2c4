"""What settings leave of a tier, now and at the observed growth: for `report --what-if`.

Exports nothing: import from `facts`, which a plan's decisions make, and `model`, which adds the growth.
"""
