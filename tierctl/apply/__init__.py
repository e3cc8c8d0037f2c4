"""Carries out plans: the only package that changes a tier, its metadata or log start offsets.

Other packages use `run.run`, `run.RunOptions`, `run_context.RunContext`, `outcome.Outcome` and `engine`.
"""
