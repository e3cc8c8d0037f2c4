"""The codecs of `__remote_log_metadata` records: the schema as data, the scalar codec, the columnar codec.

Other packages use `decode` and `encode` for one value, and `decode_columns.decode_column` and
`encode_columns.encode_column` for an Arrow column.
"""

from tierctl.wire.metadata.values import decode, encode

__all__ = ["decode", "encode"]
