"""Decisions: data in, Plan out. Nothing here opens a file, a socket or a terminal."""

from tierctl.plan.plan import Action, Plan, Skip, Step

__all__ = ["Action", "Plan", "Skip", "Step"]
