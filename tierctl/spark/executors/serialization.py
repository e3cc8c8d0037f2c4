"""What comes back from executors beside columns: pickled there, unpickled with care on the driver.

Executors read metadata and objects that somebody else wrote; what they send can only be facts, in tierctl's
own classes for facts and plain data, never a call of something else.
"""

import io
import pickle
from typing import Any

_ALLOWED = frozenset(
    {
        ("builtins", "bytearray"),
        ("array", "_array_reconstructor"),
        ("array", "array"),
        ("tierctl.errors", "_restored"),
    }
)
_ROOMS = (
    "errors",
    "model",
    "state",
    "plan",
    "verify",
    "metadata.parallel_fold",
    "metadata.state_dir.cache_ledger",
    "report.formatters.pages",
    "spark.executors.verify",
)
_PROTOCOL = 5


def dumps(value: Any) -> bytes:
    """Pickled."""
    return pickle.dumps(value, _PROTOCOL)


def loads(data: bytes) -> Any:
    """Facts that `dumps` made bytes of; UnpicklingError for anything else."""
    return _Careful(io.BytesIO(data)).load()


class _Careful(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_own = any(f"{module}.".startswith(f"tierctl.{room}.") for room in _ROOMS)
        if (module, name) in _ALLOWED or is_own:
            found = super().find_class(module, name)
            if (module, name) in _ALLOWED or (isinstance(found, type) and found.__module__ == module):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} does not travel from executors")
