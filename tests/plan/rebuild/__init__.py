"""Tests of plans of a rebuild."""
