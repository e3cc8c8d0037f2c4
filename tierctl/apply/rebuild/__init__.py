"""Carry out the steps of a rebuild: checkpoint files of stopped brokers first, then metadata events.

Nothing here writes or deletes an object of a tier.
"""
