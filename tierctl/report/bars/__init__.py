"""Progress bars at a terminal: how they look, and one that appears only if the work takes longer.

Exports nothing: rich is imported with `styles`, which few runs need.
"""
