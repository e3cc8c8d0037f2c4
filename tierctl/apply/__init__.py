"""Carries out plans: `run.run` calls the act of each step's action, and keeps what the acts have in common.

The acts of `copy`, `sweep` and `delete` stand beside these commands; here are those of restores and repairs.
"""
