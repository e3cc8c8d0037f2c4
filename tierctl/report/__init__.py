"""Rows to table, json, jsonl and csv."""

from tierctl.report.render import render, render_object, to_json
from tierctl.report.terminal import printable

__all__ = ["printable", "render", "render_object", "to_json"]
