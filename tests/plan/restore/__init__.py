"""Tests of plans of a restore into a formatted node."""
