"""Rows to table, json, jsonl and csv."""
