"""The use cases: one file per command; each takes a frozen request and returns a result.

This package is tierctl's Python API: `from tierctl.commands import SweepRequest, sweep`. Nothing here prints.
"""

import ast
import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tierctl.checks.check import CHECKS as CHECKS
    from tierctl.commands.apply import ApplyRequest as ApplyRequest
    from tierctl.commands.apply import apply as apply
    from tierctl.commands.cache import CACHE_CHECKS as CACHE_CHECKS
    from tierctl.commands.cache import CACHE_ENTRIES as CACHE_ENTRIES
    from tierctl.commands.cache import CACHE_FILES as CACHE_FILES
    from tierctl.commands.cache import CACHE_REWRITES as CACHE_REWRITES
    from tierctl.commands.cache import BuildCacheRequest as BuildCacheRequest
    from tierctl.commands.cache import CacheBuild as CacheBuild
    from tierctl.commands.cache import CacheCompaction as CacheCompaction
    from tierctl.commands.cache import CacheRequest as CacheRequest
    from tierctl.commands.cache import CacheRows as CacheRows
    from tierctl.commands.cache import CompactCacheRequest as CompactCacheRequest
    from tierctl.commands.cache import ShowCacheRequest as ShowCacheRequest
    from tierctl.commands.cache import build_cache as build_cache
    from tierctl.commands.cache import compact_cache as compact_cache
    from tierctl.commands.cache import show_cache as show_cache
    from tierctl.commands.cache import verify_cache as verify_cache
    from tierctl.commands.change import MutationResult as MutationResult
    from tierctl.commands.config import SETTINGS as SETTINGS
    from tierctl.commands.config import ConfigRequest as ConfigRequest
    from tierctl.commands.config import NamesRequest as NamesRequest
    from tierctl.commands.config import NamesResult as NamesResult
    from tierctl.commands.config import OptionValue as OptionValue
    from tierctl.commands.config import SettingInForce as SettingInForce
    from tierctl.commands.config import check_names as check_names
    from tierctl.commands.config import show_config as show_config
    from tierctl.commands.copy.command import CopyRequest as CopyRequest
    from tierctl.commands.copy.command import copy as copy
    from tierctl.commands.delete import LEAKED_TOPICS as LEAKED_TOPICS
    from tierctl.commands.delete import REMOVER_INTERVAL_MS as REMOVER_INTERVAL_MS
    from tierctl.commands.delete import DeleteRequest as DeleteRequest
    from tierctl.commands.delete import LeakedTopic as LeakedTopic
    from tierctl.commands.delete import LeakedTopics as LeakedTopics
    from tierctl.commands.delete import delete as delete
    from tierctl.commands.delete import delete_repeatedly as delete_repeatedly
    from tierctl.commands.delete import find_leaked_topics as find_leaked_topics
    from tierctl.commands.doctor import DoctorRequest as DoctorRequest
    from tierctl.commands.doctor import OwnSettings as OwnSettings
    from tierctl.commands.doctor import doctor as doctor
    from tierctl.commands.explain import EXPLANATIONS as EXPLANATIONS
    from tierctl.commands.explain import ExplainRequest as ExplainRequest
    from tierctl.commands.explain import Explanation as Explanation
    from tierctl.commands.explain import Explanations as Explanations
    from tierctl.commands.explain import explain as explain
    from tierctl.commands.fetch import FetchRequest as FetchRequest
    from tierctl.commands.fetch import FetchResult as FetchResult
    from tierctl.commands.fetch import FollowerState as FollowerState
    from tierctl.commands.fetch import IndexEntries as IndexEntries
    from tierctl.commands.fetch import ObjectBytes as ObjectBytes
    from tierctl.commands.fetch import RecordRows as RecordRows
    from tierctl.commands.fetch import RecordTexts as RecordTexts
    from tierctl.commands.fetch import fetch as fetch
    from tierctl.commands.format import EVENTS as EVENTS
    from tierctl.commands.format import FormatRequest as FormatRequest
    from tierctl.commands.format import find_formatter_jar as find_formatter_jar
    from tierctl.commands.format import format_records as format_records
    from tierctl.commands.offsets import COMMITTED_OFFSETS as COMMITTED_OFFSETS
    from tierctl.commands.offsets import OFFSET_REPAIRS as OFFSET_REPAIRS
    from tierctl.commands.offsets import UNSAFE_OFFSETS as UNSAFE_OFFSETS
    from tierctl.commands.offsets import OffsetsCheck as OffsetsCheck
    from tierctl.commands.offsets import OffsetsRepair as OffsetsRepair
    from tierctl.commands.offsets import OffsetsRequest as OffsetsRequest
    from tierctl.commands.offsets import OffsetStep as OffsetStep
    from tierctl.commands.offsets import RepairOffsetsRequest as RepairOffsetsRequest
    from tierctl.commands.offsets import StoredOffsets as StoredOffsets
    from tierctl.commands.offsets import check_offsets as check_offsets
    from tierctl.commands.offsets import repair_offsets as repair_offsets
    from tierctl.commands.offsets import show_offsets as show_offsets
    from tierctl.commands.pipeline import COMMITS as COMMITS
    from tierctl.commands.pipeline import PipelineCommit as PipelineCommit
    from tierctl.commands.pipeline import RunPipelineRequest as RunPipelineRequest
    from tierctl.commands.pipeline import run_pipeline as run_pipeline
    from tierctl.commands.report import REPORT_ROWS as REPORT_ROWS
    from tierctl.commands.report import Report as Report
    from tierctl.commands.report import ReportRequest as ReportRequest
    from tierctl.commands.report import report as report
    from tierctl.commands.restore.backup_config import SAVED_TOPICS as SAVED_TOPICS
    from tierctl.commands.restore.backup_config import BackupConfig as BackupConfig
    from tierctl.commands.restore.backup_config import BackupConfigRequest as BackupConfigRequest
    from tierctl.commands.restore.backup_config import backup_config as backup_config
    from tierctl.commands.restore.check import RestoreCheckRequest as RestoreCheckRequest
    from tierctl.commands.restore.check import restore_check as restore_check
    from tierctl.commands.restore.erasure import KEY_OCCURRENCES as KEY_OCCURRENCES
    from tierctl.commands.restore.erasure import KeyOccurrences as KeyOccurrences
    from tierctl.commands.restore.to_ids import RestoreNewIdsRequest as RestoreNewIdsRequest
    from tierctl.commands.restore.to_ids import restore_new_ids as restore_new_ids
    from tierctl.commands.restore.to_log import RestoreLogRequest as RestoreLogRequest
    from tierctl.commands.restore.to_log import restore_log as restore_log
    from tierctl.commands.restore.to_metadata import RebuildRequest as RebuildRequest
    from tierctl.commands.restore.to_metadata import rebuild as rebuild
    from tierctl.commands.restore.to_node import RestoreIntoRequest as RestoreIntoRequest
    from tierctl.commands.restore.to_node import restore_into as restore_into
    from tierctl.commands.segments import SEGMENT_ROWS as SEGMENT_ROWS
    from tierctl.commands.segments import PartitionOffsets as PartitionOffsets
    from tierctl.commands.segments import SegmentsRequest as SegmentsRequest
    from tierctl.commands.segments import SegmentsResult as SegmentsResult
    from tierctl.commands.segments import TopicSize as TopicSize
    from tierctl.commands.segments import segments as segments
    from tierctl.commands.status import STATUS_ROWS as STATUS_ROWS
    from tierctl.commands.status import Status as Status
    from tierctl.commands.status import StatusRequest as StatusRequest
    from tierctl.commands.status import status as status
    from tierctl.commands.submit import SubmitLine as SubmitLine
    from tierctl.commands.submit import SubmitRequest as SubmitRequest
    from tierctl.commands.submit import submit as submit
    from tierctl.commands.sweep import SweepRequest as SweepRequest
    from tierctl.commands.sweep import sweep as sweep
    from tierctl.commands.verify.command import FINDINGS as FINDINGS
    from tierctl.commands.verify.command import VerifyRequest as VerifyRequest
    from tierctl.commands.verify.command import finding_kinds as finding_kinds
    from tierctl.commands.verify.command import verify as verify
    from tierctl.commands.what_if import CHANGE_ROWS as CHANGE_ROWS
    from tierctl.commands.what_if import GroupLoss as GroupLoss
    from tierctl.commands.what_if import TopicOutlook as TopicOutlook
    from tierctl.commands.what_if import WhatIf as WhatIf
    from tierctl.commands.what_if import WhatIfRequest as WhatIfRequest
    from tierctl.commands.what_if import what_if as what_if
    from tierctl.read.record_rows import INDEXES as INDEXES
    from tierctl.read.record_rows import RECORDS as RECORDS
    from tierctl.report.results import RowLines as RowLines
    from tierctl.report.results import Stream as Stream


def _stated_modules() -> dict[str, str]:
    """Return the module of each public name, as the imports above state it.

    Only type checkers carry these imports out.
    """
    tree = ast.parse(inspect.getsource(sys.modules[__name__]))
    stated = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    modules = {alias.name: node.module or "" for node in stated for alias in node.names}
    return {name: module for name, module in modules.items() if module.startswith("tierctl.")}


_MODULE_OF = _stated_modules()

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import the module of `name` now, not with the package: `tierctl --help` must start fast."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULE_OF[name])
    own = [each for each, stated in _MODULE_OF.items() if stated == module.__name__]
    globals().update({each: getattr(module, each) for each in own})
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
