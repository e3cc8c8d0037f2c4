"""Bytes to model and back, pure; no file is opened here."""
