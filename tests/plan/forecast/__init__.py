"""Tests of `tierctl.plan.forecast`."""
