"""Leases: they let only one tierctl at a time change a tier.

Other packages use `lease_of`.
"""
