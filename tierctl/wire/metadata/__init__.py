"""The codecs of `__remote_log_metadata` records.

`schema` describes the records as data, `values` decodes and encodes one value, and `decode` decodes many.
"""
