"""Progress bars at a terminal: their styles, and a bar that appears only if the work takes longer.

Exports nothing: rich is imported with `styles`, which few runs need.
"""
