"""The codecs of `__remote_log_metadata` records: the schema as data, the scalar codec, the columnar codec.

Other packages use `decode` and `encode` for one value, `decode_column` and `encode_column` for an Arrow
column.
"""

from typing import TYPE_CHECKING, Any

from tierctl.wire.metadata.values import decode, encode

if TYPE_CHECKING:
    from tierctl.wire.metadata.decode_columns import decode_column
    from tierctl.wire.metadata.encode_columns import encode_column

__all__ = ["decode", "decode_column", "encode", "encode_column"]


def __getattr__(name: str) -> Any:
    """Import the columnar codec at its first use, because it needs pyarrow and numpy."""
    if name == "decode_column":
        from tierctl.wire.metadata.decode_columns import decode_column

        return decode_column
    if name == "encode_column":
        from tierctl.wire.metadata.encode_columns import encode_column

        return encode_column
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
