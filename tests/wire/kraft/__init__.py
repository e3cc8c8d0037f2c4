"""Tests of the records of KRaft's cluster metadata."""
