"""The commands that bring a tier, or its topics, back after a loss.

Exports nothing: `main` registers each command from its module.
"""
