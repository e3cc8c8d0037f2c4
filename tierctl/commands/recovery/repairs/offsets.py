"""Find and lower unsafe committed offsets in the log directories of brokers before Kafka 3.8."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tierctl.checks.findings import Finding, unreadable_offsets, unsafe_offset
from tierctl.commands.mutation import Mutation
from tierctl.commands.offsets import (
    FILE_NAME,
    OffsetsRequest,
    RepairOffsetsRequest,
    check_offsets,
    repair_offsets,
)
from tierctl.commands.request import Request
from tierctl.errors import CorruptInputError
from tierctl.metadata.topic import METADATA_TOPIC
from tierctl.model import TopicIdPartition
from tierctl.model.ids import ZERO_UUID
from tierctl.model.progress import Progress
from tierctl.plan.repair import lower_offset
from tierctl.plan.steps import Step

_R = TypeVar("_R", bound=OffsetsRequest)


def unsafe_offsets(request: Request, progress: Progress) -> Iterator[Finding]:
    """Yield a finding for each unsafe committed offset, and for each damaged file of committed offsets."""
    for folder in request.log_dir:
        path = Path(folder) / FILE_NAME
        if not path.exists():
            continue
        try:
            found = check_offsets(_asked(OffsetsRequest, request, path), progress).findings
        except CorruptInputError as e:
            yield unreadable_offsets(path, e)
            continue
        for each in found:
            message = f"the committed offset {each.committed_offset} is unsafe: {each.problem}; {each.detail}"
            yield unsafe_offset(path, each.metadata_partition, message)


def lower_offset_steps(run: Mutation, files: Sequence[str]) -> list[Step]:
    """Return a step per file that lowers its unsafe offsets."""
    topic_id = run.metadata.identity().metadata_topic_id or ZERO_UUID
    return [
        lower_offset(
            file,
            TopicIdPartition(topic_id, METADATA_TOPIC, step.metadata_partition),
            (step.from_offset, step.to_offset),
            step.reason,
        )
        for file in files
        for step in repair_offsets(_asked(RepairOffsetsRequest, run.request, Path(file)), run.progress).steps
        if step.metadata_partition is not None and step.from_offset is not None
    ]


def _asked(kind: type[_R], request: Request, path: Path) -> _R:
    return kind(
        metadata=request.metadata,
        bootstrap_server=request.bootstrap_server,
        command_config=request.command_config,
        log_dir=(path.parent,),
        file=path,
    )
