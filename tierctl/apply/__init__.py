"""The only package that changes a tier, its metadata or log start offsets: it carries out plans.

Other packages use `run` (apply.run), `RunContext`, `RunOptions`, `Outcome` and the engines.
"""
