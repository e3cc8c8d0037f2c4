"""Encode results and errors on executors, and decode them on the driver without running foreign code.

Executors read metadata and objects that other programs wrote, so their results are untrusted input. Only
plain data, tierctl's own data classes and tierctl's errors are decoded: no pickled call of another function.
"""

import io
import pickle
import struct
import sys
from typing import Any

import pyarrow as pa

from tierctl.errors import EngineError, TierctlError
from tierctl.storage.observed import Transfers

_ALLOWED = frozenset(
    {
        ("builtins", "bytearray"),
        ("array", "_array_reconstructor"),
        ("array", "array"),
        ("tierctl.errors", "_restored"),
    }
)
_PACKAGES = (
    "errors",
    "model",
    "state",
    "plan",
    "verify",
    "metadata.daily_changes",
    "metadata.fold.parallel",
    "read.key_search",
    "wire.files.committed_offsets",
    "metadata.cache_files.rows",
    "metadata.cache_files.coverage",
    "metadata.cache_files.files",
    "metadata.cache_files.rewrite",
    "metadata.cache_files.compact",
    "metadata.state_dir.cache_ledger",
    "report.formatters.pages",
    "report.formatters.text_lines",
    "apply.written_segment",
    "apply.side_effects",
    "wire.batches.batch_head",
    "wire.batches.batch_heads",
    "storage.observed",
    "storage.throttle",
    "doctor.executors",
    "spark.executors.verify",
)
"""The packages and modules below `tierctl` whose classes may be decoded."""

_PROTOCOL = 5
# A compressed value is: this magic, with which no pickle begins; the size of the pickle; a Zstandard frame.
_COMPRESSED, _SIZE = b"ZSTD", struct.Struct(">Q")
# Values with fewer bytes are not compressed.
_COMPRESSED_BYTES_MIN = 1 << 16
# A damaged or forged pickle may raise any of these.
_DECODING_ERRORS = (
    *(pickle.UnpicklingError, EOFError, ImportError, AttributeError, OSError, struct.error, MemoryError),
    *(ValueError, TypeError, LookupError, OverflowError),
)


def dumps(value: Any) -> bytes:
    """Return `value` as a pickle, a large one compressed: Spark's driver holds three copies of a result."""
    data = pickle.dumps(value, _PROTOCOL)
    if len(data) < _COMPRESSED_BYTES_MIN:
        return data
    return b"".join((_COMPRESSED, _SIZE.pack(len(data)), pa.compress(data, codec="zstd", asbytes=True)))


def loads(data: bytes) -> Any:
    """Return the value that `dumps` encoded; raise UnpicklingError for a class that may not be decoded."""
    if data.startswith(_COMPRESSED):
        at = len(_COMPRESSED)
        (size_bytes,) = _SIZE.unpack_from(data, at)
        frame = memoryview(data)[at + _SIZE.size :]
        data = pa.decompress(frame, decompressed_size=size_bytes, codec="zstd", asbytes=True)
    return _RestrictedUnpickler(io.BytesIO(data)).load()


def decoded_result(data: bytes) -> Any:
    """Return the result of an executor; raise EngineError if it cannot be decoded."""
    try:
        return loads(data)
    except _DECODING_ERRORS as e:
        raise EngineError(
            f"the result of an executor cannot be decoded: {e}",
            hint="check that executors have the same version of tierctl",
        ) from e


def decoded_error(data: bytes) -> TierctlError:
    """Return the error that a function raised on an executor; raise EngineError if it cannot be decoded."""
    error = decoded_result(data)
    if isinstance(error, TierctlError):
        return error
    raise EngineError(f"the error of an executor cannot be decoded: it is of type {type(error).__name__}")


def decoded_outcome(data: bytes, *, is_error: bool) -> tuple[Any, TierctlError | None]:
    """Return the result of an executor and None, or None and its error, also if it cannot be decoded."""
    try:
        return (None, decoded_error(data)) if is_error else (decoded_result(data), None)
    except EngineError as e:
        return None, e


def decoded_transfers(data: bytes) -> Transfers:
    """Return the transfers that an executor reported; raise EngineError if they can't be decoded."""
    found = decoded_result(data)
    if isinstance(found, Transfers):
        return found
    raise EngineError(f"the data of an executor cannot be decoded: it is of type {type(found).__name__}")


def with_host(error: TierctlError, host: str) -> TierctlError:
    """Return `error` with the executor's host in its hint."""
    place = f"on executor {host}"
    error.hint = f"{error.hint}; {place}" if error.hint else place
    return error


class _RestrictedUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_own = any(f"{module}.".startswith(f"tierctl.{package}.") for package in _PACKAGES)
        if (module, name) in _ALLOWED or is_own:
            found = super().find_class(module, name)
            if (module, name) in _ALLOWED or (isinstance(found, type) and found.__module__ == module):
                return found
        # An error class of another module. The module must be loaded: importing one may have effects.
        loaded = getattr(sys.modules.get(module), name, None)
        if isinstance(loaded, type) and issubclass(loaded, TierctlError) and loaded.__module__ == module:
            return loaded
        raise pickle.UnpicklingError(f"{module}.{name} can't be transferred from executors")
