"""Storage of the pipeline's tables as Delta tables in a folder or an S3 bucket, and the commits over them.

Other packages use `open.WarehouseSpec` and `Commits`, whose module describes how several tables stay
consistent.
"""

from typing import TYPE_CHECKING

from tierctl.lazy import exports

if TYPE_CHECKING:
    from tierctl.pipeline.warehouse.commits import Commits, require_same_topic
else:
    # deltalake takes 0.1 s to import, is optional, and is not needed on executors.
    __getattr__ = exports(__name__, commits=("Commits", "require_same_topic"))

__all__ = ["Commits", "require_same_topic"]
