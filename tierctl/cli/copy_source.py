"""`tierctl copy --from-remote`: from one tier to another, with metadata of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tierctl.cli import options
from tierctl.cli.context import Context
from tierctl.cli.mutation import Mutation, mutation
from tierctl.cli.plans import report_quarantined, say
from tierctl.errors import UsageError
from tierctl.model.uris import folder_of
from tierctl.plan.plan import Plan

if TYPE_CHECKING:
    from tierctl.apply.copy.source import Sources
    from tierctl.metadata.base import RemoteLogMetadataManager
    from tierctl.storage import TierSpec
    from tierctl.storage.base import RemoteStorageManager

FROM_TIER = "From one tier to another"

FromRemote = Annotated[
    str | None,
    typer.Option(
        "--from-remote",
        metavar="URI",
        help="Copy from this tier, which --metadata is about, rather than from log directories.",
        rich_help_panel=FROM_TIER,
    ),
]
FromLayout = Annotated[
    options.Layout | None,
    typer.Option(
        "--from-layout",
        help="Names of the objects in --from-remote. Default: what is there.",
        rich_help_panel=FROM_TIER,
    ),
]
ToMetadata = Annotated[
    str | None,
    typer.Option(
        "--to-metadata",
        metavar="URI",
        help="The metadata topic of --remote, the tier that is copied to; never that of --from-remote.",
        rich_help_panel=FROM_TIER,
    ),
]
ToCommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--to-command-config",
        metavar="FILE",
        help="As --command-config, for --to-metadata. Default: --command-config.",
        rich_help_panel=FROM_TIER,
    ),
]


def require_one_source(ctx: typer.Context) -> None:
    """UsageError for options that contradict each other, or would copy a tier onto itself."""
    given = ctx.params
    if given["from_remote"] is None:
        for name in ("to_metadata", "from_layout", "to_command_config"):
            if given[name] is not None:
                raise UsageError(f"--{name.replace('_', '-')} goes with --from-remote")
        return
    if given.get("log_dir"):
        raise UsageError("--log-dir and --from-remote exclude each other", hint="copy from one of them")
    if given["to_metadata"] is None:
        raise UsageError(
            "--to-metadata is missing",
            hint="the copies need a metadata topic of their own: in that of --from-remote a broker would "
            "take each for a second copy of the same offsets, and never delete the first",
        )
    if _place("--metadata", given["metadata"]) == _place("--to-metadata", given["to_metadata"]):
        raise UsageError("--metadata and --to-metadata are the same topic", hint="name another one")
    same_tier = _place("--from-remote", given["from_remote"]) == _place("--remote", given["remote"])
    if same_tier and given["from_layout"] == given["layout"]:
        raise UsageError("--from-remote and --remote are the same tier", hint="name another one, or a layout")


def _place(option: str, uri: str | None) -> str | None:
    """A URI so that two spellings of one folder are the same."""
    if uri is None or (":" in uri.split("/", 1)[0] and not uri.startswith("file:")):
        return uri and uri.rstrip("/")
    return str(folder_of(option, uri).resolve())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tier:
    """The tier that is copied from."""

    metadata: "RemoteLogMetadataManager"
    remote: "RemoteStorageManager"
    sources: "Sources"
    spec: "TierSpec"


def copy_from_tier(ctx: typer.Context, *, clean_dangling: bool) -> int:
    """Plan, and with --apply carry out, what --remote lacks of --from-remote."""
    with mutation(ctx, may_be_new=True) as run, source_of(ctx) as tier:
        plan = run.narrowed(_plan(run, tier, clean_dangling=clean_dangling))
        run.bad_source = report_quarantined(tier.metadata.state)
        run.from_remote = tier.spec
        partitions = {step.topic_id_partition for step in plan.steps}
        return run.conclude(
            plan, lambda: run.copy_options(tier.sources), check=lambda: run.check_fence(partitions)
        )


@contextmanager
def source_of(ctx: typer.Context) -> Iterator[_Tier]:
    """Open --metadata and --from-remote, for reading."""
    from tierctl.apply.copy.tier_source import TierSources
    from tierctl.storage.spool import spool_folder

    with Context.of_source(ctx) as context, spool_folder() as spool:
        metadata, remote = context.metadata(), context.remote()
        metadata.refresh()
        sources = TierSources(metadata, remote, spool)
        yield _Tier(metadata=metadata, remote=remote, sources=sources, spec=context.remote_spec(remote))


@contextmanager
def sources_of(ctx: typer.Context) -> "Iterator[_Tier | None]":
    """Where a copy from tier to tier comes from; None for a command that is none."""
    if ctx.params["from_remote"] is None:
        yield None
        return
    with source_of(ctx) as tier:
        yield tier


def _plan(run: Mutation, tier: _Tier, *, clean_dangling: bool) -> Plan:
    from tierctl.plan.copy_from_tier import plan_copy_from_tier
    from tierctl.plan.dangling_copies import DANGLING_AGE_MS_MIN, Dangling
    from tierctl.read.indexes import UncachedIndexes
    from tierctl.read.partitions import refused
    from tierctl.read.replicas import lineage_of_tier

    fetcher = UncachedIndexes(tier.remote)
    source = tier.metadata.state
    lineages = {
        part.topic_id_partition.key: lineage_of_tier(part.cache, fetcher, lambda e: say(e.message))
        for part in source
        if part.topic_id_partition in run.context.selection and refused(part.topic_id_partition) is None
    }
    now_ms = run.context.now_ms
    dangling = Dangling(now_ms=now_ms, after_ms=DANGLING_AGE_MS_MIN) if clean_dangling else None
    return plan_copy_from_tier(source, run.refresh(), lineages, dangling=dangling)
