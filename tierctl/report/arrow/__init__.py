"""Results as tables of Arrow, with the columns of `report.tables`.

Other packages use `result.TableResult` and `arrow_table`.
"""

from typing import TYPE_CHECKING

from tierctl.lazy import exports

if TYPE_CHECKING:
    from tierctl.report.arrow.table import arrow_table
else:
    # Only a caller of the Python API asks for a table; commands that print need no pyarrow for that.
    __getattr__ = exports(__name__, table=("arrow_table",))

__all__ = ["arrow_table"]
