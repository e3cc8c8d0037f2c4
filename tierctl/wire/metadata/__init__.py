"""The codecs of `__remote_log_metadata` records: the schema as data, the scalar codec, the columnar codec.

Other packages use `decode` and `encode` for one value, `decode_column` and `encode_column` for an Arrow
column.
"""

from typing import TYPE_CHECKING

from tierctl.lazy import exports

if TYPE_CHECKING:
    from tierctl.wire.metadata.decode_columns import decode_column
    from tierctl.wire.metadata.encode_columns import encode_column
    from tierctl.wire.metadata.values import decode, encode
else:
    __getattr__ = exports(
        __name__,
        decode_columns=("decode_column",),
        encode_columns=("encode_column",),
        values=("decode", "encode"),
    )

__all__ = ["decode", "decode_column", "encode", "encode_column"]
