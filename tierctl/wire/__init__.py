"""Codecs: bytes to the types of tierctl.model and back, without opening files.

Other packages use the subpackages `metadata`, `batches`, `files` and `aiven`.
"""
