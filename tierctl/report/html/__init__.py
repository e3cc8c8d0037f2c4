"""The page of `report --html`: one file that needs no network, with its script and style sheet.

Exports nothing: use `file.write_page`.
"""
