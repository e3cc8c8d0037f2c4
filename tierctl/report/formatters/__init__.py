"""Metadata records as text: the plugin point `tierctl.formatters`, and the formatters that come along.

An entry point of that group is called with the properties the user gave (a mapping of text to text) and
returns a `Formatter`; it raises UsageError for a property it doesn't know.
"""
