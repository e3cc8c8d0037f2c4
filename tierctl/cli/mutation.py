"""What every command that changes things has in common: fences, a plan to show, a run, outcomes to show."""

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tierctl.apply.defaults import NOT_A_BROKER_ID
from tierctl.cli.context import Context
from tierctl.cli.plans import (
    progress,
    report_quarantined,
    report_skipped,
    say,
    show_outcomes,
    show_plan,
    write_plan,
)
from tierctl.errors import ExitCode, LimitExceeded, SafetyRefusal, TierctlError, UsageError
from tierctl.model import LocalLog, TopicIdPartition, TopicPartition, Uuid
from tierctl.plan.plan import Plan, Skip

if TYPE_CHECKING:
    from tierctl.apply.copy.source import Sources
    from tierctl.apply.engine import Engine
    from tierctl.apply.journal import Journal
    from tierctl.apply.run import RunOptions
    from tierctl.apply.run_context import RunContext
    from tierctl.apply.stop import Stop
    from tierctl.commands.running_cluster import Live
    from tierctl.metadata.base import RemoteLogMetadataManager
    from tierctl.state.tier import TierState
    from tierctl.storage import TierSpec
    from tierctl.storage.base import RemoteStorageManager

CUSTOM_METADATA_MAX_BYTES = "remote.log.metadata.custom.metadata.max.bytes"


@dataclass(kw_only=True)
class Mutation:
    """One run of a command that may change things.

    Opened by `mutation`; with --apply the fences are up and the metadata are writable.
    """

    params: Mapping[str, Any]
    context: Context
    metadata: "RemoteLogMetadataManager"
    unreadable: set[TopicPartition] = field(default_factory=set)
    bad_source: bool = False
    """Whether a tier that is copied from has metadata that could not be used."""
    from_remote: "TierSpec | None" = None
    """The tier that is copied from."""

    @property
    def apply(self) -> bool:
        """Whether --apply was given."""
        return bool(self.params["apply"])

    @cached_property
    def settings(self) -> dict[str, str]:
        """Broker settings of --config and --override, the latter winning."""
        from tierctl.locallog import read_properties

        file = self.params.get("config")
        settings = read_properties(file) if file else {}
        for text in self.params.get("override") or ():
            name, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"--override {text}: expected NAME=VALUE")
            settings[name.strip()] = value.strip()
        return settings

    def refresh(self) -> "TierState":
        """The metadata, read to their end."""
        return self.metadata.refresh()

    def read_logs(self, partitions: Collection[TopicPartition] | None = None) -> list[LocalLog]:
        """The logs of --log-dir, by --topic and --partition or of `partitions` only; all ids of a name.

        A log that can't be read is reported, remembered in `unreadable`, and the rest goes on.
        """
        from tierctl.locallog import read_log_dirs

        context = self.context

        def wanted(partition: TopicPartition) -> bool:
            if partitions is not None:
                return partition in partitions
            return (not context.topic or partition.topic in context.topic) and (
                not context.partition or partition.partition in context.partition
            )

        def report(folder: Path, error: TierctlError) -> None:
            say(f"unreadable: {folder}: {error.message}")
            self.unreadable.add(TopicPartition.parse(folder.name))

        return read_log_dirs(list(context.log_dir), select=wanted, on_error=report)

    def narrowed(self, plan: Plan) -> Plan:
        """What the plan says of the selected partitions whose log could be read."""
        selection = self.context.selection
        steps = [step for step in plan.steps if step.topic_id_partition in selection]
        skips = [skip for skip in plan.skipped if skip.topic_id_partition in selection]
        unread = {
            step.topic_id_partition for step in steps if _name(step.topic_id_partition) in self.unreadable
        }
        kept = [step for step in steps if step.topic_id_partition not in unread]
        skips += [Skip.of(partition, "its log can't be read") for partition in sorted(unread)]
        return replace(plan, steps=tuple(kept), skipped=tuple(skips))

    def copy_options(self, sources: "Sources | None" = None) -> "RunOptions":
        """What copying needs besides the plan; `sources` are the logs of --log-dir unless given."""
        from tierctl.apply.copy.log_source import LogSources
        from tierctl.apply.defaults import CUSTOM_METADATA_MAX_BYTES as DEFAULT_MAX_BYTES
        from tierctl.apply.run import RunOptions

        given = self.params.get("custom_metadata_max_bytes")
        setting = self.settings.get(CUSTOM_METADATA_MAX_BYTES, str(DEFAULT_MAX_BYTES))
        try:
            max_bytes = int(setting) if given is None else int(given)
        except ValueError:
            raise UsageError(f"{CUSTOM_METADATA_MAX_BYTES}={setting!r} is not a whole number") from None
        sources = LogSources(self.read_logs) if sources is None else sources
        return RunOptions(sources=sources, custom_metadata_max_bytes=max_bytes, fence=self.check_fence)

    def sweep_options(self, log_starts: "Mapping[TopicIdPartition, int]") -> "RunOptions":
        """What sweeping needs besides the plan; `log_starts` are those that were asked for."""
        from tierctl.apply.run import RunOptions

        kept = self.journal is not None or self.live is not None
        if log_starts and not kept:
            say("the raised log starts are not kept: give --state-dir, or the same options each time")
        return RunOptions(
            log_starts=log_starts,
            raise_log_starts=self._raise_log_starts if kept else None,
            fence=self.check_fence,
        )

    def _raise_log_starts(self, starts: "Mapping[TopicIdPartition, int]") -> None:
        """On the cluster first: what is kept here must never be ahead of what consumers are told."""
        if self.live is not None:
            self.live.raise_log_starts(starts)
        if self.journal is not None:
            self.journal.raise_log_starts(starts)

    def removal_options(self) -> "RunOptions":
        """What partition deletes need besides the plan."""
        from tierctl.apply.run import RunOptions

        journal = self.journal
        return RunOptions(
            commit_processed=None if journal is None else journal.commit_processed,
            fence=lambda partitions: self.check_fence(partitions, unknown_is_safe=True),
        )

    @cached_property
    def live(self) -> "Live | None":
        """The cluster that has the data, when one is named."""
        from tierctl.commands.running_cluster import Live

        cluster = self.context.cluster()
        if cluster is None:
            return None
        return Live(
            cluster=cluster,
            metadata=self.metadata,
            topic=self.context.metadata_topic() if self.context.is_on_cluster else None,
            own_broker_ids={NOT_A_BROKER_ID, self.params["broker_id"]},
            now_ms=clock_ms,
        )

    def check_fence(
        self, partitions: "Collection[TopicIdPartition]", *, unknown_is_safe: bool = False
    ) -> None:
        """SafetyRefusal when brokers may do this work themselves, unless --allow-live-brokers."""
        if self.live is not None and partitions and not self.params["allow_live_brokers"]:
            self.live.check_fence(partitions, unknown_is_safe=unknown_is_safe)

    def check_plan_fence(
        self,
        plan: Plan,
        looked_at: "Collection[TopicIdPartition]",
        more: "Collection[TopicIdPartition]" = (),
    ) -> None:
        """SafetyRefusal when a step of `plan`, or what is done about `more`, may be a broker's to do.

        What no step is about is left to whoever does it; a plan without steps is refused where brokers do
        the work on all that was `looked_at`.
        """
        planned = {step.topic_id_partition for step in plan.steps} | set(more)
        if planned:
            self.check_fence(planned)
        elif self.live is not None and not self.params["allow_live_brokers"]:
            self.live.check_any_open(looked_at)

    @cached_property
    def journal(self) -> "Journal | None":
        """What --state-dir keeps of earlier runs."""
        from tierctl.apply.journal import Journal

        return None if self.context.state_dir is None else Journal(self.context.state_dir)

    def check_limits(self, plan: Plan, state: "TierState") -> None:
        """LimitExceeded when the plan deletes more than --max-deletes or --max-fraction allow."""
        from tierctl.plan.limits import MAX_DELETES, MAX_FRACTION, check_limits

        deletes, fraction = self.params.get("max_deletes"), self.params.get("max_fraction")
        check_limits(
            plan,
            state,
            max_deletes=MAX_DELETES if deletes is None else deletes,
            max_fraction=MAX_FRACTION if fraction is None else fraction,
        )

    def conclude(
        self,
        plan: Plan,
        options: "Callable[[], RunOptions]",
        *,
        check: Callable[[], None] | None = None,
        stop: "Stop | None" = None,
    ) -> int:
        """Show `plan`, or with --apply carry it out and show what became of it; the exit code.

        `check` raises LimitExceeded or SafetyRefusal for a plan that may not be carried out; without --apply
        it only warns.
        With `stop` somebody else already listens to signals.
        """
        bad = report_quarantined(self.metadata.state) or bool(self.unreadable) or self.bad_source
        report_skipped(plan)
        write_plan(plan, self.params.get("plan_out"))
        if self.apply:
            if check is not None:
                check()
            return self._carry_out(plan, options, bad=bad, stop=stop)
        show_plan(plan, self.params["output"])
        _warn(check)
        if bad:
            return ExitCode.CORRUPT
        pending = bool(plan.steps) and self.params["detailed_exitcode"]
        return ExitCode.PLAN_PENDING if pending else ExitCode.OK

    def _carry_out(
        self, plan: Plan, options: "Callable[[], RunOptions]", *, bad: bool, stop: "Stop | None"
    ) -> int:
        from tierctl.apply.exclusion import leased
        from tierctl.apply.outcome import exit_code
        from tierctl.apply.run import run
        from tierctl.apply.stop import Stop, stop_on_signals

        # Executors tell of their bytes only when a wave is over; what they do is seen by their tasks.
        bar = nullcontext(_unwatched) if self.context.is_on_spark else progress(plan)
        with ExitStack() as listening, bar as advance:
            if stop is None:
                stop = listening.enter_context(stop_on_signals(Stop()))
            lease = listening.enter_context(leased(self.remote, stop))
            outcomes = run(plan, self.run_context(plan, stop, advance), options())
            lost = lease is not None and lease.is_lost()
        show_outcomes(plan, outcomes, self.params["output"])
        if lost:
            say("stopped: it is not certain any more that no other tierctl changes this tier; run again")
            return ExitCode.LOCKED
        bad = bad or bool(self.metadata.state.quarantined)
        return stop.exit_code or exit_code(outcomes, quarantined=bad)

    def run_context(self, plan: Plan, stop: "Stop", advance: Callable[[int], None]) -> "RunContext":
        """What a run works with: the clock, fresh random ids, threads or executors."""
        from tierctl.apply.run_context import RunContext

        engine = self._engine(plan, stop)
        return RunContext(
            remote=self.remote,
            metadata=self.metadata,
            clock_ms=clock_ms,
            new_segment_id=new_segment_id,
            broker_id=self.params["broker_id"],
            engine=engine,
            wave_size=self.params["wave_size"] or engine.wave_size,
            stop=stop,
            advance=advance,
            allow_missing_objects=self.params["allow_missing_objects"],
        )

    def _engine(self, plan: Plan, stop: "Stop") -> "Engine":
        from tierctl.apply.engine import LocalEngine

        if not plan.steps or not self.context.is_on_spark:
            return LocalEngine(self.params["threads"])
        from tierctl.spark.executors.engine import SparkEngine
        from tierctl.spark.executors.worker import BenchSpec

        spec = BenchSpec(remote=self.context.remote_spec(self.remote), from_remote=self.from_remote)
        return SparkEngine(self.context.spark(), spec, stop=stop, what=plan.command)

    @cached_property
    def remote(self) -> "RemoteStorageManager":
        """The tier, its failed calls repeated as the retry settings say."""
        from tierctl.storage.retry import RetrySettings

        retry = RetrySettings.from_settings(self.settings, attempts=self.params["attempts"])
        return self.context.remote(self.settings, retry)


def clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _unwatched(_size_bytes: int) -> None:
    """Nobody looks."""


def _warn(check: Callable[[], None] | None) -> None:
    try:
        if check is not None:
            check()
    except (LimitExceeded, SafetyRefusal) as e:
        say(f"--apply would refuse this: {e.message}")


def _name(partition: TopicIdPartition) -> TopicPartition:
    return partition.topic_partition


def new_segment_id() -> Uuid:
    """A random id, never one that begins with '-': Kafka's Uuid.randomUuid, so that no tool takes it for an
    option.
    """
    while True:
        candidate = Uuid.from_bytes(uuid.uuid4().bytes)
        if not candidate.startswith("-"):
            return candidate


@contextmanager
def mutation(ctx: typer.Context, *, fence_logs: bool = True, may_be_new: bool = False) -> Iterator[Mutation]:
    """Open what the command's options name; with --apply behind the fences, and for writing.

    With `may_be_new` --metadata need not have a metadata topic yet; else NotFoundError.

    LockedError when another tierctl is at work, SafetyRefusal when a broker runs on a --log-dir, unless
    --allow-live-brokers or not `fence_logs`.
    """
    apply = bool(ctx.params["apply"])
    with Context.of(ctx) as context, ExitStack() as held:
        if apply:
            from tierctl.apply.exclusion import fenced

            fence_logs = fence_logs and not ctx.params["allow_live_brokers"]
            held.enter_context(fenced(context.log_dir if fence_logs else ()))
        metadata = context.metadata(writable=apply, may_be_new=may_be_new)
        yield Mutation(params=ctx.params, context=context, metadata=metadata)
