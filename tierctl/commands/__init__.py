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
        ShowCacheRequest,
        build_cache,
        compact_cache,
        show_cache,
        verify_cache,
    )
    from tierctl.commands.change import MutationResult
    from tierctl.commands.copy.command import CopyRequest, copy
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
    from tierctl.commands.insight.config import (
        ConfigRequest,
        NamesRequest,
        NamesResult,
        OptionValue,
        SettingInForce,
        check_names,
        show_config,
    )
    from tierctl.commands.insight.doctor import DoctorRequest, OwnSettings, doctor
    from tierctl.commands.insight.erasure import KeyOccurrences
    from tierctl.commands.insight.explain import ExplainRequest, Explanation, Explanations, explain
    from tierctl.commands.insight.report import Report, ReportRequest, report
    from tierctl.commands.insight.status import Status, StatusRequest, status
    from tierctl.commands.insight.what_if import (
        GroupLoss,
        TopicOutlook,
        WhatIf,
        WhatIfRequest,
        what_if,
    )
    from tierctl.commands.offsets import (
        OffsetsCheck,
        OffsetsRepair,
        OffsetsRequest,
        OffsetStep,
        RepairOffsetsRequest,
        StoredOffsets,
        check_offsets,
        repair_offsets,
        show_offsets,
    )
    from tierctl.commands.pipeline import (
        PipelineCommit,
        RunPipelineRequest,
        run_pipeline,
    )
    from tierctl.commands.restore.backup_config import BackupConfig, BackupConfigRequest, backup_config
    from tierctl.commands.restore.check import RestoreCheckRequest, restore_check
    from tierctl.commands.restore.to_ids import RestoreNewIdsRequest, restore_new_ids
    from tierctl.commands.restore.to_log import RestoreLogRequest, restore_log
    from tierctl.commands.restore.to_metadata import RebuildRequest, rebuild
    from tierctl.commands.restore.to_node import RestoreIntoRequest, restore_into
    from tierctl.commands.segments import (
        PartitionOffsets,
        SegmentsRequest,
        SegmentsResult,
        TopicSize,
        segments,
    )
    from tierctl.commands.submit import SubmitLine, SubmitRequest, submit
    from tierctl.commands.sweep.command import SweepRequest, sweep
    from tierctl.commands.verify.command import VerifyRequest, verify
    from tierctl.report.results import RowLines, Stream

__all__ = [
    "ApplyRequest",
    "BackupConfig",
    "BackupConfigRequest",
    "BuildCacheRequest",
    "CacheBuild",
    "CacheCompaction",
    "CacheRequest",
    "CacheRows",
    "CompactCacheRequest",
    "ConfigRequest",
    "CopyRequest",
    "DeleteRequest",
    "DoctorRequest",
    "ExplainRequest",
    "Explanation",
    "Explanations",
    "FetchRequest",
    "FetchResult",
    "FollowerState",
    "FormatRequest",
    "GroupLoss",
    "IndexEntries",
    "KeyOccurrences",
    "LeakedTopic",
    "LeakedTopics",
    "MutationResult",
    "NamesRequest",
    "NamesResult",
    "ObjectBytes",
    "OffsetStep",
    "OffsetsCheck",
    "OffsetsRepair",
    "OffsetsRequest",
    "OptionValue",
    "OwnSettings",
    "PartitionOffsets",
    "PipelineCommit",
    "RebuildRequest",
    "RecordRows",
    "RecordTexts",
    "RepairOffsetsRequest",
    "Report",
    "ReportRequest",
    "RestoreCheckRequest",
    "RestoreIntoRequest",
    "RestoreLogRequest",
    "RestoreNewIdsRequest",
    "RowLines",
    "RunPipelineRequest",
    "SegmentsRequest",
    "SegmentsResult",
    "SettingInForce",
    "ShowCacheRequest",
    "Status",
    "StatusRequest",
    "StoredOffsets",
    "Stream",
    "SubmitLine",
    "SubmitRequest",
    "SweepRequest",
    "TopicOutlook",
    "TopicSize",
    "VerifyRequest",
    "WhatIf",
    "WhatIfRequest",
    "apply",
    "backup_config",
    "build_cache",
    "check_names",
    "check_offsets",
    "compact_cache",
    "copy",
    "delete",
    "delete_repeatedly",
    "doctor",
    "explain",
    "fetch",
    "find_formatter_jar",
    "find_leaked_topics",
    "finding_kinds",
    "format_records",
    "rebuild",
    "repair_offsets",
    "report",
    "restore_check",
    "restore_into",
    "restore_log",
    "restore_new_ids",
    "run_pipeline",
    "segments",
    "show_cache",
    "show_config",
    "show_offsets",
    "status",
    "submit",
    "sweep",
    "verify",
    "verify_cache",
    "what_if",
]

_MODULE_OF = {
    "ApplyRequest": "apply",
    "BackupConfig": "restore.backup_config",
    "BackupConfigRequest": "restore.backup_config",
    "BuildCacheRequest": "cache",
    "CacheBuild": "cache",
    "CacheCompaction": "cache",
    "CacheRequest": "cache",
    "CacheRows": "cache",
    "CompactCacheRequest": "cache",
    "ConfigRequest": "insight.config",
    "CopyRequest": "copy.command",
    "DeleteRequest": "delete",
    "DoctorRequest": "insight.doctor",
    "ExplainRequest": "insight.explain",
    "Explanation": "insight.explain",
    "Explanations": "insight.explain",
    "FetchRequest": "fetch",
    "FetchResult": "fetch",
    "FollowerState": "fetch",
    "FormatRequest": "format",
    "GroupLoss": "insight.what_if",
    "IndexEntries": "fetch",
    "KeyOccurrences": "insight.erasure",
    "LeakedTopic": "delete",
    "LeakedTopics": "delete",
    "RestoreLogRequest": "restore.to_log",
    "MutationResult": "change",
    "NamesRequest": "insight.config",
    "NamesResult": "insight.config",
    "RestoreNewIdsRequest": "restore.to_ids",
    "ObjectBytes": "fetch",
    "OffsetStep": "offsets",
    "OffsetsCheck": "offsets",
    "OffsetsRepair": "offsets",
    "OffsetsRequest": "offsets",
    "OptionValue": "insight.config",
    "OwnSettings": "insight.doctor",
    "PartitionOffsets": "segments",
    "PipelineCommit": "pipeline",
    "RebuildRequest": "restore.to_metadata",
    "RecordRows": "fetch",
    "RecordTexts": "fetch",
    "RepairOffsetsRequest": "offsets",
    "Report": "insight.report",
    "ReportRequest": "insight.report",
    "RestoreCheckRequest": "restore.check",
    "RestoreIntoRequest": "restore.to_node",
    "RowLines": ".report.results",
    "RunPipelineRequest": "pipeline",
    "SegmentsRequest": "segments",
    "SegmentsResult": "segments",
    "SettingInForce": "insight.config",
    "ShowCacheRequest": "cache",
    "Status": "insight.status",
    "StatusRequest": "insight.status",
    "StoredOffsets": "offsets",
    "Stream": ".report.results",
    "SubmitLine": "submit",
    "SubmitRequest": "submit",
    "SweepRequest": "sweep.command",
    "TopicOutlook": "insight.what_if",
    "TopicSize": "segments",
    "VerifyRequest": "verify.command",
    "WhatIf": "insight.what_if",
    "WhatIfRequest": "insight.what_if",
    "apply": "apply",
    "backup_config": "restore.backup_config",
    "build_cache": "cache",
    "check_names": "insight.config",
    "check_offsets": "offsets",
    "restore_check": "restore.check",
    "compact_cache": "cache",
    "copy": "copy.command",
    "delete": "delete",
    "delete_repeatedly": "delete",
    "doctor": "insight.doctor",
    "explain": "insight.explain",
    "fetch": "fetch",
    "find_formatter_jar": "format",
    "find_leaked_topics": "delete",
    "format_records": "format",
    "finding_kinds": "verify.command",
    "restore_log": "restore.to_log",
    "rebuild": "restore.to_metadata",
    "repair_offsets": "offsets",
    "report": "insight.report",
    "restore_into": "restore.to_node",
    "restore_new_ids": "restore.to_ids",
    "run_pipeline": "pipeline",
    "segments": "segments",
    "show_cache": "cache",
    "show_config": "insight.config",
    "show_offsets": "offsets",
    "status": "insight.status",
    "submit": "submit",
    "sweep": "sweep.command",
    "verify": "verify.command",
    "verify_cache": "cache",
    "what_if": "insight.what_if",
}


def __getattr__(name: str) -> Any:
    """Import the module of `name` now, not with the package: `tierctl --help` must start fast."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_MODULE_OF[name]}", __name__)
    globals().update(
        {each: getattr(module, each) for each in _MODULE_OF if _MODULE_OF[each] == _MODULE_OF[name]}
    )
    if "pyarrow" in sys.modules:
        import_module(f"{__name__}.arrow_start").start_without_pandas()
    return globals()[name]


class _Package(ModuleType):
    """Make a use case's attribute of this package the function, although its module has the same name.

    The import system sets a package's attribute to each module that it imports.
    """

    def __setattr__(self, name: str, value: object) -> None:
        # `__getattr__` finds the use case; the import system needs no attribute.
        if not (isinstance(value, ModuleType) and name in _MODULE_OF):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
