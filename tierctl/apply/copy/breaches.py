"""Breaches of KIP-917's limit: what makes the custom metadata, and the record of a run's breaches."""

from collections.abc import Sequence

from tierctl.apply.journal import Journal
from tierctl.apply.outcome import Outcome
from tierctl.errors import CustomMetadataTooLarge
from tierctl.plan.copy.custom_metadata import CustomMetadataBreach
from tierctl.storage import RemoteStorageManager
from tierctl.storage.identity import tier_layout
from tierctl.storage.open import TierSpec


def custom_metadata_layout(remote: RemoteStorageManager, spec: TierSpec) -> str:
    """Return the name of the tier's layout, with the fields of custom metadata that it writes."""
    return f"{tier_layout(remote)} {','.join(sorted(spec.aiven.custom_metadata_fields))}".strip()


def record_breaches(outcomes: Sequence[Outcome], journal: Journal, layout: str) -> None:
    """Record the segments of `outcomes` whose custom metadata exceeded the limit."""
    breaches = [
        CustomMetadataBreach(
            topic_id=outcome.step.topic_id,
            partition=outcome.step.partition,
            start_offset=outcome.step.start_offset or 0,
            size_bytes=outcome.error.size_bytes,
            limit_bytes=outcome.error.limit_bytes,
            layout=layout,
        )
        for outcome in outcomes
        if isinstance(outcome.error, CustomMetadataTooLarge)
    ]
    if breaches:
        journal.record_breaches(breaches)
