"""The commands that bring a tier, or its topics, back after a loss, and the one that prepares for it.

Exports nothing: `main` registers each command from its module.
"""
