"""Work on executors: one transport for functions and their inputs, and the jobs that use it.

Other packages use `transport.Executors`, `engine.SparkEngine` and the jobs `fold`, `format`, `fetch`,
`verify`, and the functions below as attributes of this package, which then imports their module.
"""

from typing import TYPE_CHECKING

from tierctl.lazy import exports

if TYPE_CHECKING:
    from tierctl.spark.executors.cache_files import find_missing, read_files
    from tierctl.spark.executors.tier import list_object_sets, read_each
else:
    __getattr__ = exports(
        __name__,
        cache_files=("find_missing", "read_files"),
        tier=("list_object_sets", "read_each"),
    )

__all__ = ["find_missing", "list_object_sets", "read_each", "read_files"]
