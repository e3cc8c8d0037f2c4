"""Use cases after a loss: metadata rebuilt from the objects of a tier.

Exports nothing: import from the module of the command.
"""
