"""`report --what-if`: decide with present and changed settings; sum up and price the remaining segments."""

from collections.abc import Iterator, Sequence

from tierctl.commands.insight.requests import request_as
from tierctl.commands.insight.whatif.changes import OPTION, Changes
from tierctl.commands.insight.whatif.facts import FactsRequest, gather_facts, object_counts
from tierctl.commands.insight.whatif.groups import group_losses
from tierctl.commands.insight.whatif.rows import GroupLoss, TopicOutlook, WhatIf, WhatIfRequest
from tierctl.commands.insight.whatif.sums import Prices, Summing
from tierctl.commands.insight.whatif.tables import facts_from_tables
from tierctl.commands.mutation import Mutation, mutation
from tierctl.commands.resources import Resources
from tierctl.commands.skips import any_not_understood, skip_lines
from tierctl.commands.sweep import SweepRequest, retention_inputs
from tierctl.errors import ExitCode, UsageError
from tierctl.model.progress import Progress, SilentProgress
from tierctl.model.selection import names_text
from tierctl.plan.forecast.facts import GatheredFacts, PartitionFacts
from tierctl.plan.reasons import AGE_NOT_STATED


def what_if(request: WhatIfRequest, progress: Progress | None = None) -> WhatIf:
    """Return the remaining segments of the selected topics after the change, now and in 90 days.

    Nothing is changed. The decisions are those of `sweep` for the same request, once with the present and
    once with the changed settings. Raise UsageError for an unknown setting or topic and for a change that
    Kafka refuses, NotFoundError if the selection does not exist, SafetyRefusal for a clock that is behind the
    events, and the errors of the metadata, the tier and the cluster.
    """
    changes = Changes.parse(request.what_if)
    if not changes.changes:
        raise UsageError(f"{OPTION} is missing", hint="as --what-if 'orders.retention.ms=7d'")
    prices = Prices(
        per_gb_month=request.price_per_gb_month, per_1000_requests=request.price_per_1000_requests
    )
    if request.warehouse is not None:
        with Resources(request=request, progress=progress or SilentProgress()) as resources:
            gathered = facts_from_tables(resources, changes, request.warehouse)
            for line in skip_lines(gathered.skipped):
                resources.progress.say(line)
            return _result(resources, gathered, prices, is_damaged=gathered.damaged > 0)
    with mutation(request_as(SweepRequest, request), progress or SilentProgress()) as run:
        gathered = _gather(run, changes)
        is_damaged = run.histories.report(run.metadata.state)
        return _result(run.resources, gathered, prices, is_damaged=is_damaged or bool(run.unreadable))


def _gather(run: Mutation, changes: Changes) -> GatheredFacts:
    request = request_as(SweepRequest, run.request)
    inputs = retention_inputs(run, request, changes.size_limit)
    selection = run.resources.selection
    topics = {
        part.topic_id_partition.topic
        for part in inputs.state
        if part.topic_id_partition in selection and part.segment_count and part.delete_state is None
    }
    changes.require_topics(topics)
    asked = FactsRequest(
        changed=changes.applied(inputs.configs, topics),
        selection=selection,
        objects=None if run.request.remote is None else object_counts(run.remote),
        unreadable=run.unreadable,
    )
    gathered = gather_facts(inputs, asked)
    for line in skip_lines(run.histories.unreported(gathered.skipped)):
        run.progress.say(line)
    return gathered


def _result(resources: Resources, gathered: GatheredFacts, prices: Prices, *, is_damaged: bool) -> WhatIf:
    facts = gathered.facts
    if gathered.removed:
        resources.progress.note(
            f"{gathered.removed} partitions that are being deleted are left out; tierctl delete removes them"
        )
    summing = Summing(now_ms=resources.now_ms, prices=prices, counts_objects=gathered.counts_objects)
    topics = tuple(summing.rows(facts))
    for text in _unknown(resources, topics[:-1], facts):
        resources.progress.note(text)
    groups, knows_groups = _groups(resources, facts)
    is_complete = knows_groups and not topics[-1].undecided_partitions
    is_damaged = is_damaged or any_not_understood(
        (skip.reason for skip in gathered.skipped), resources.request
    )
    code = ExitCode.OK if is_complete else ExitCode.PARTIAL
    return WhatIf(topics=topics, groups=groups, exit_code=ExitCode.CORRUPT if is_damaged else code)


def _unknown(
    resources: Resources, topics: Sequence[TopicOutlook], facts: Sequence[PartitionFacts]
) -> Iterator[str]:
    """Yield a text for each kind of unknown value, with the reason."""
    unstated = {each.topic: each.changed.is_age_stated for each in facts if not each.unchanged.is_age_stated}
    for is_changed, figures in ((False, "the figures"), (True, "the figures without the change")):
        names = sorted(topic for topic, is_stated in unstated.items() if is_stated is is_changed)
        if names:
            yield f"{names_text(names)}: {AGE_NOT_STATED}, so {figures} count no expiry by age"
    young = sorted({row.topic for row in topics if row.growth_since_ms is None})
    if young:
        yield f"less than a day of history: the growth of {names_text(young)} is not known"
    undecided = sorted({row.topic for row in topics if row.undecided_partitions})
    if undecided:
        yield (
            f"not decided, so not known under the change: {names_text(undecided)}; retention.bytes needs the "
            "size of the log, from the cluster or --log-dir"
        )
    if resources.cluster is None:
        yield "it is unknown without a cluster which consumer groups would lose records: --bootstrap-server"
    if not resources.request.log_dir:
        yield "the brokers' disks are not known without --log-dir"


def _groups(resources: Resources, facts: Sequence[PartitionFacts]) -> tuple[tuple[GroupLoss, ...], bool]:
    if resources.cluster is None:
        return (), True
    return group_losses(resources.cluster, facts, resources.progress)
