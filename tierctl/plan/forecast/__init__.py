"""Forecast the contents of a tier with given settings, now and at the observed growth (`report --what-if`).

Exports nothing: import from `facts`, which the decisions of a plan make, and from `model`, which adds the
growth.
"""
