"""The use case `report`: sizes by age, growth by day, next expirations, and the page that shows them.

Exports nothing: import `report` from `tierctl.commands`.
"""
