"""Encode results and errors on executors, and decode them on the driver without running foreign code.

Executors read metadata and objects that other programs wrote, so their results are untrusted input. Only
plain data, tierctl's own data classes and tierctl's errors are decoded: no pickled call of another function.
"""

import io
import pickle
import sys
from typing import Any

from tierctl.errors import EngineError, TierctlError

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
    "apply.side_effects",
    "spark.executors.verify",
)
"""The packages and modules below `tierctl` whose classes may be decoded."""

_PROTOCOL = 5
# A damaged or forged pickle fails with any of these.
_DECODING_ERRORS = (
    *(pickle.UnpicklingError, EOFError, ImportError, AttributeError),
    *(ValueError, TypeError, LookupError, OverflowError),
)


def dumps(value: Any) -> bytes:
    """Return `value` as a pickle."""
    return pickle.dumps(value, _PROTOCOL)


def loads(data: bytes) -> Any:
    """Return the value that `dumps` encoded; raise UnpicklingError for a class that may not be decoded."""
    return _RestrictedUnpickler(io.BytesIO(data)).load()


def decoded_result(data: bytes) -> Any:
    """Return the result of an executor; raise EngineError if it cannot be decoded."""
    try:
        return loads(data)
    except _DECODING_ERRORS as e:
        raise EngineError(
            f"the result of an executor cannot be decoded: {e}", hint="do executors run the same tierctl?"
        ) from e


def decoded_error(data: bytes) -> TierctlError:
    """Return the error that a function raised on an executor; raise EngineError if it cannot be decoded."""
    error = decoded_result(data)
    if isinstance(error, TierctlError):
        return error
    raise EngineError(f"the error of an executor cannot be decoded: it is of type {type(error).__name__}")


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
        raise pickle.UnpicklingError(f"{module}.{name} does not travel from executors")
