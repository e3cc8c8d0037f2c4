"""The use cases: one file per command; each takes a frozen request and returns a result.

This package is tierctl's Python API: `from tierctl.commands import SweepRequest, sweep`. Nothing here prints.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tierctl.checks.check import *
    from tierctl.checks.findings import *
    from tierctl.commands.apply import *
    from tierctl.commands.cache import *
    from tierctl.commands.change import *
    from tierctl.commands.config import *
    from tierctl.commands.copy.command import *
    from tierctl.commands.delete import *
    from tierctl.commands.doctor import *
    from tierctl.commands.explain import *
    from tierctl.commands.fetch import *
    from tierctl.commands.format import *
    from tierctl.commands.offsets import *
    from tierctl.commands.pipeline import *
    from tierctl.commands.report import *
    from tierctl.commands.restore.backup_config import *
    from tierctl.commands.restore.check import *
    from tierctl.commands.restore.erasure import *
    from tierctl.commands.restore.to_ids import *
    from tierctl.commands.restore.to_log import *
    from tierctl.commands.restore.to_metadata import *
    from tierctl.commands.restore.to_node import *
    from tierctl.commands.segments import *
    from tierctl.commands.status import *
    from tierctl.commands.submit import *
    from tierctl.commands.sweep import *
    from tierctl.commands.verify.command import *
    from tierctl.commands.what_if import *
    from tierctl.read.record_rows import *
    from tierctl.report.results import *

_PUBLIC = {
    "tierctl.checks.check": ("CHECKS",),
    "tierctl.checks.findings": ("FINDINGS", "FindingKind"),
    "tierctl.commands.apply": ("ApplyRequest", "apply"),
    "tierctl.commands.cache": (
        "CACHE_CHECKS",
        "CACHE_ENTRIES",
        "CACHE_FILES",
        "CACHE_REWRITES",
        "BuildCacheRequest",
        "CacheBuild",
        "CacheCompaction",
        "CacheRequest",
        "CacheRows",
        "CompactCacheRequest",
        "ShowCacheRequest",
        "build_cache",
        "compact_cache",
        "show_cache",
        "verify_cache",
    ),
    "tierctl.commands.change": ("MutationResult",),
    "tierctl.commands.config": (
        "SETTINGS",
        "ConfigRequest",
        "NamesRequest",
        "NamesResult",
        "OptionValue",
        "SettingInForce",
        "check_names",
        "show_config",
    ),
    "tierctl.commands.copy.command": ("CopyRequest", "copy"),
    "tierctl.commands.delete": (
        "LEAKED_TOPICS",
        "REMOVER_INTERVAL_MS",
        "DeleteRequest",
        "LeakedTopic",
        "LeakedTopics",
        "delete",
        "delete_repeatedly",
        "find_leaked_topics",
    ),
    "tierctl.commands.doctor": ("DoctorRequest", "OwnSettings", "doctor"),
    "tierctl.commands.explain": ("EXPLANATIONS", "ExplainRequest", "Explanation", "Explanations", "explain"),
    "tierctl.commands.fetch": (
        "FetchRequest",
        "FetchResult",
        "FollowerState",
        "IndexEntries",
        "ObjectBytes",
        "RecordRows",
        "RecordTexts",
        "fetch",
    ),
    "tierctl.commands.format": ("EVENTS", "FormatRequest", "format_records"),
    "tierctl.commands.offsets": (
        "COMMITTED_OFFSETS",
        "OFFSET_REPAIRS",
        "UNSAFE_OFFSETS",
        "OffsetsCheck",
        "OffsetsRepair",
        "OffsetsRequest",
        "OffsetStep",
        "RepairOffsetsRequest",
        "StoredOffsets",
        "check_offsets",
        "repair_offsets",
        "show_offsets",
    ),
    "tierctl.commands.pipeline": ("COMMITS", "PipelineCommit", "RunPipelineRequest", "run_pipeline"),
    "tierctl.commands.report": ("REPORT_ROWS", "Report", "ReportRequest", "report"),
    "tierctl.commands.restore.backup_config": (
        "SAVED_TOPICS",
        "BackupConfig",
        "BackupConfigRequest",
        "backup_config",
    ),
    "tierctl.commands.restore.check": ("RestoreCheckRequest", "restore_check"),
    "tierctl.commands.restore.erasure": ("KEY_OCCURRENCES", "KeyOccurrences"),
    "tierctl.commands.restore.to_ids": ("RestoreNewIdsRequest", "restore_new_ids"),
    "tierctl.commands.restore.to_log": ("RestoreLogRequest", "restore_log"),
    "tierctl.commands.restore.to_metadata": ("RebuildRequest", "rebuild"),
    "tierctl.commands.restore.to_node": ("RestoreIntoRequest", "restore_into"),
    "tierctl.commands.segments": (
        "SEGMENT_ROWS",
        "PartitionOffsets",
        "SegmentsRequest",
        "SegmentsResult",
        "TopicSize",
        "segments",
    ),
    "tierctl.commands.status": ("STATUS_ROWS", "Status", "StatusRequest", "status"),
    "tierctl.commands.submit": ("SubmitLine", "SubmitRequest", "submit"),
    "tierctl.commands.sweep": ("SweepRequest", "sweep"),
    "tierctl.commands.verify.command": ("VerifyRequest", "verify"),
    "tierctl.commands.what_if": (
        "CHANGE_ROWS",
        "GroupLoss",
        "TopicOutlook",
        "WhatIf",
        "WhatIfRequest",
        "what_if",
    ),
    "tierctl.read.record_rows": ("INDEXES", "RECORDS"),
    "tierctl.report.results": ("RowLines", "Stream"),
}
"""The public names of each module, whose types the imports above give to type checkers."""
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import the module of `name` now, not with the package: `tierctl --help` must start fast."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULE_OF[name])
    globals().update({each: getattr(module, each) for each in _PUBLIC[_MODULE_OF[name]]})
    if "pyarrow" in sys.modules:
        import_module("tierctl.wire.arrays").start_without_pandas()
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
