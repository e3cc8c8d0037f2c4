"""The use cases: one file per command; each takes a frozen request and returns a result.

This package is tierctl's Python API: `from tierctl.commands import SweepRequest, sweep`. Nothing here prints.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tierctl.commands.apply import ApplyRequest, apply
    from tierctl.commands.cache import (
        BuildCacheRequest,
        CacheBuild,
        CacheCompaction,
        CacheRequest,
        CacheRows,
        CompactCacheRequest,
        build_cache,
        compact_cache,
        show_cache,
        verify_cache,
    )
    from tierctl.commands.copy import CopyRequest, copy
    from tierctl.commands.delete import (
        DeleteRequest,
        LeakedTopic,
        LeakedTopics,
        delete,
        delete_repeatedly,
        find_leaked_topics,
    )
    from tierctl.commands.fetch import (
        FetchRequest,
        FetchResult,
        FollowerState,
        IndexEntries,
        ObjectBytes,
        RecordRows,
        RecordTexts,
        fetch,
    )
    from tierctl.commands.format import FormatRequest, find_formatter_jar, format_records
    from tierctl.commands.lineage_questions import PartitionOffsets
    from tierctl.commands.offsets import (
        OffsetsCheck,
        OffsetsRepair,
        OffsetsRequest,
        OffsetStep,
        RepairOffsetsRequest,
        check_offsets,
        repair_offsets,
        show_offsets,
    )
    from tierctl.commands.pipeline import (
        PipelineCommit,
        PlanPipelineRequest,
        RunPipelineRequest,
        plan_pipeline,
        run_pipeline,
    )
    from tierctl.commands.plans import MutationResult
    from tierctl.commands.segments import (
        SegmentsRequest,
        SegmentsResult,
        TopicSize,
        segments,
    )
    from tierctl.commands.streams import Stream
    from tierctl.commands.submit import SubmitLine, SubmitRequest, submit
    from tierctl.commands.sweep import SweepRequest, sweep
    from tierctl.commands.verify import VerifyRequest, hint_of, verify

__all__ = [
    "ApplyRequest",
    "BuildCacheRequest",
    "CacheBuild",
    "CacheCompaction",
    "CacheRequest",
    "CacheRows",
    "CompactCacheRequest",
    "CopyRequest",
    "DeleteRequest",
    "FetchRequest",
    "FetchResult",
    "FollowerState",
    "FormatRequest",
    "IndexEntries",
    "LeakedTopic",
    "LeakedTopics",
    "MutationResult",
    "ObjectBytes",
    "OffsetStep",
    "OffsetsCheck",
    "OffsetsRepair",
    "OffsetsRequest",
    "PartitionOffsets",
    "PipelineCommit",
    "PlanPipelineRequest",
    "RecordRows",
    "RecordTexts",
    "RepairOffsetsRequest",
    "RunPipelineRequest",
    "SegmentsRequest",
    "SegmentsResult",
    "Stream",
    "SubmitLine",
    "SubmitRequest",
    "SweepRequest",
    "TopicSize",
    "VerifyRequest",
    "apply",
    "build_cache",
    "check_offsets",
    "compact_cache",
    "copy",
    "delete",
    "delete_repeatedly",
    "fetch",
    "find_formatter_jar",
    "find_leaked_topics",
    "format_records",
    "hint_of",
    "plan_pipeline",
    "repair_offsets",
    "run_pipeline",
    "segments",
    "show_cache",
    "show_offsets",
    "submit",
    "sweep",
    "verify",
    "verify_cache",
]

_MODULE_OF = {
    "ApplyRequest": "apply",
    "BuildCacheRequest": "cache",
    "CacheBuild": "cache",
    "CacheCompaction": "cache",
    "CacheRequest": "cache",
    "CacheRows": "cache",
    "CompactCacheRequest": "cache",
    "CopyRequest": "copy",
    "DeleteRequest": "delete",
    "FetchRequest": "fetch",
    "FetchResult": "fetch",
    "FollowerState": "fetch",
    "FormatRequest": "format",
    "IndexEntries": "fetch",
    "LeakedTopic": "delete",
    "LeakedTopics": "delete",
    "MutationResult": "plans",
    "ObjectBytes": "fetch",
    "OffsetStep": "offsets",
    "OffsetsCheck": "offsets",
    "OffsetsRepair": "offsets",
    "OffsetsRequest": "offsets",
    "PartitionOffsets": "lineage_questions",
    "PipelineCommit": "pipeline",
    "PlanPipelineRequest": "pipeline",
    "RecordRows": "fetch",
    "RecordTexts": "fetch",
    "RepairOffsetsRequest": "offsets",
    "RunPipelineRequest": "pipeline",
    "SegmentsRequest": "segments",
    "SegmentsResult": "segments",
    "Stream": "streams",
    "SubmitLine": "submit",
    "SubmitRequest": "submit",
    "SweepRequest": "sweep",
    "TopicSize": "segments",
    "VerifyRequest": "verify",
    "apply": "apply",
    "build_cache": "cache",
    "check_offsets": "offsets",
    "compact_cache": "cache",
    "copy": "copy",
    "delete": "delete",
    "delete_repeatedly": "delete",
    "fetch": "fetch",
    "find_formatter_jar": "format",
    "find_leaked_topics": "delete",
    "format_records": "format",
    "hint_of": "verify",
    "plan_pipeline": "pipeline",
    "repair_offsets": "offsets",
    "run_pipeline": "pipeline",
    "segments": "segments",
    "show_cache": "cache",
    "show_offsets": "offsets",
    "submit": "submit",
    "sweep": "sweep",
    "verify": "verify",
    "verify_cache": "cache",
}


def __getattr__(name: str) -> Any:
    """Import the module of `name` now, not with the package: `tierctl --help` must start fast."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    if "pyarrow" in sys.modules:
        import_module(f"{__name__}.arrow_start").start_without_pandas()
    return found


class _Package(ModuleType):
    """Make a use case's attribute of this package the function, although its module has the same name.

    The import system sets a package's attribute to each module that it imports.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and _MODULE_OF.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
