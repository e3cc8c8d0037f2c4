"""Metadata records as text: the plugin point `tierctl.formatters`, and the formatters kafka, kip and json.

An entry point of that group is called with the properties of the user (a mapping of text to text) and
returns a `Formatter`; it raises UsageError for an unknown property.
"""

from tierctl.report.formatters.records import Formatter, Record, Records

__all__ = ["Formatter", "Record", "Records"]
