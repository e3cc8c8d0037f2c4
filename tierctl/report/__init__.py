"""Text for users: rows as table, json, jsonl or csv, messages and bars, plans, and metadata records.

Exports `render`, `render_object`, `to_json` and `printable`; `formatters` is the plugin point of `format`.
"""

from tierctl.report.render import render, render_object, to_json
from tierctl.report.table import printable

__all__ = ["printable", "render", "render_object", "to_json"]
