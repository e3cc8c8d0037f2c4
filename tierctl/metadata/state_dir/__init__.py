"""The state directory: flat-file caches, `_rlmm_committed_offsets`, and the manifest of both.

Other packages use `StateDirectory`.
"""
