"""From options to objects: what a command opens, it opens here, only when it needs it.

def segments(ctx: typer.Context, metadata: options.Metadata = None, ...) -> None:
    with Context.of(ctx) as context:
        state = context.metadata().refresh()
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import typer

from tierctl.cli.options import is_typed
from tierctl.errors import UsageError
from tierctl.model import LocalLog, Selection, TopicConfig, Uuid
from tierctl.model.location import TopicLocation
from tierctl.model.private_keys import private_keys_of
from tierctl.report.terminal import printable
from tierctl.spark.session.settings import SparkSettings

if TYPE_CHECKING:
    from tierctl.kafka.cluster import Cluster
    from tierctl.metadata.base import RemoteLogMetadataManager
    from tierctl.metadata.fold.parallel import FoldRunner
    from tierctl.metadata.topic import IfMissing, MetadataTopic
    from tierctl.spark.executors.transport import Executors
    from tierctl.spark.session.open import Session
    from tierctl.storage import RemoteStorageManager, TierSpec
    from tierctl.storage.retry import RetrySettings


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


@dataclass(kw_only=True)
class Context:
    """One run's options, and the objects they name; closes what it opened."""

    metadata_uri: str | None = None
    command_config: Path | None = None
    config: Path | None = None
    bootstrap_server: str | None = None
    create_metadata_topic: bool = False
    remote_uri: str | None = None
    layout: str | None = None
    aiven_private_key: Sequence[str] = ()
    log_dir: Sequence[Path] = ()
    topic_configs_file: Path | None = None
    state_dir: Path | None = None
    topic: Sequence[str] = ()
    partition: Sequence[int] = ()
    topic_id: Sequence[str] = ()
    now: int | None = None
    spark_settings: SparkSettings | None = None
    _spark: "Session | None" = field(default=None, init=False, repr=False)
    _executors: "Executors | None" = field(default=None, init=False, repr=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False, repr=False)
    _noted: set[str] = field(default_factory=set, init=False, repr=False)

    @classmethod
    def of(cls, ctx: typer.Context) -> Self:
        """From the options the command takes; those it doesn't take are as if not given.

        Where a copy goes from tier to tier, the one it goes to.
        """
        given: dict[str, Any] = ctx.params | {"spark_settings": _spark_settings(ctx)}
        if given.get("to_metadata") is not None:
            # What --state-dir keeps is of --metadata.
            config = given["to_command_config"] or given["command_config"]
            given |= {"metadata": given["to_metadata"], "state_dir": None, "command_config": config}
        return cls._of(given)

    @classmethod
    def _of(cls, given: dict[str, Any]) -> Self:
        for option, name in (
            ("metadata", "metadata_uri"),
            ("remote", "remote_uri"),
            ("topic_configs", "topic_configs_file"),
        ):
            given[name] = given.pop(option, None)
        known = {f.name for f in fields(cls) if f.init}
        return cls(**{name: value for name, value in given.items() if name in known and value is not None})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What is closed hears of the error: Spark's become tierctl's own there.
        self._open.__exit__(kind, error, trace)

    def note(self, text: str) -> None:
        """Something worth knowing that is no error, on stderr; once, however often it is met."""
        if text not in self._noted:
            self._noted.add(text)
            typer.echo(f"note: {printable(text)}", err=True)

    def _closing(self, opened: C) -> C:
        self._open.callback(opened.close)
        return opened

    @property
    def is_on_cluster(self) -> bool:
        """Return whether --metadata is a topic on a cluster."""
        return _required("--metadata", self.metadata_uri).startswith("kafka:")

    @property
    def metadata_location(self) -> TopicLocation:
        """Return the location of --metadata, also for executors; UsageError if it is missing."""
        given = _required("--metadata", self.metadata_uri)
        from tierctl.metadata.topic import topic_location

        return topic_location("--metadata", given, command_config=self.command_config, config=self.config)

    def metadata(self, *, writable: bool = False, may_be_new: bool = False) -> "RemoteLogMetadataManager":
        """Open the manager over --metadata; `writable` takes the writer's lock.

        A folder without a metadata topic raises NotFoundError, unless it `may_be_new`: then it reads as an
        empty topic, and `writable` makes the topic.
        """
        from tierctl.metadata import open_metadata

        def report(note: str) -> None:
            typer.echo(f"state directory: {note}", err=True)

        return self._closing(
            open_metadata(
                self.metadata_location,
                state_dir=self.state_dir,
                writable=writable,
                if_missing=self._if_missing(writable=writable, may_be_new=may_be_new),
                on_torn=self.note,
                on_note=report,
                fold_runner=self._bulk_fold(),
            )
        )

    def _if_missing(self, *, writable: bool, may_be_new: bool) -> "IfMissing":
        from tierctl.metadata.topic import IfMissing

        if writable and (self.create_metadata_topic if self.is_on_cluster else may_be_new):
            return IfMissing.CREATE
        return IfMissing.EMPTY if may_be_new else IfMissing.FAIL

    def _bulk_fold(self) -> "FoldRunner | None":
        """Return the fold on executors, None with --engine local."""
        if not self.is_on_spark:
            return None
        from tierctl.spark.executors.fold import SparkFold

        return SparkFold(self.executors(), self.metadata_location)

    def metadata_topic(self, *, complete: bool = True, quiet: bool = False) -> "MetadataTopic":
        """Open the topic of --metadata for reading its records.

        Unless `complete`, a folder with only some partitions and a single segment file are accepted too. If
        `quiet`, nothing is printed about logs that end in an unfinished write.
        """
        from tierctl.metadata.topic import open_topic

        on_torn = None if quiet else self.note
        return self._closing(open_topic(self.metadata_location, complete=complete, on_torn=on_torn))

    def cluster(self) -> "Cluster | None":
        """Open the cluster of --bootstrap-server, else that of --metadata; return None without either."""
        where = self.bootstrap_server or (self.metadata_uri if self.is_on_cluster else None)
        if where is None:
            return None
        from tierctl.kafka.cluster import Cluster
        from tierctl.metadata.server_properties import cluster_client

        settings = cluster_client(where, command_config=self.command_config, server_config=self.config)
        return self._closing(Cluster(settings))

    def remote(
        self, settings: Mapping[str, str] | None = None, retry: "RetrySettings | None" = None
    ) -> "RemoteStorageManager":
        """The remote tier of --remote; UsageError when it is not given.

        `settings` are a broker's; default: those of --config. Failed calls are repeated as `retry` says;
        without it as those settings do, and where there is no network not at all.
        """
        from tierctl.storage import open_tier

        return self._closing(open_tier(self.tier_spec(settings, retry)))

    def tier_spec(
        self, settings: Mapping[str, str] | None = None, retry: "RetrySettings | None" = None
    ) -> "TierSpec":
        """How to open the tier of --remote; `settings` and `retry` as for `remote`."""
        from tierctl.locallog import read_properties
        from tierctl.storage import TierSpec, store_uri

        uri = store_uri("--remote", _required("--remote", self.remote_uri))
        if settings is None:
            settings = read_properties(self.config) if self.config else {}
        return TierSpec.from_settings(
            uri, settings, layout=self.layout, private_keys=self._private_keys, retry=retry
        )

    @property
    def _private_keys(self) -> dict[str, Path]:
        """Those of --aiven-private-key by id, "" for any."""
        return private_keys_of(self.aiven_private_key)

    def logs(self) -> list[LocalLog]:
        """The logs of --log-dir that are selected; UsageError when none is given."""
        if not self.log_dir:
            raise UsageError("--log-dir is missing", hint="name a broker's log directory (log.dirs)")
        from tierctl.locallog import read_log_dirs

        selection = self.selection
        return [log for log in read_log_dirs(list(self.log_dir)) if log.topic_id_partition in selection]

    def topic_configs(self) -> dict[str, TopicConfig]:
        """Settings by topic from --topic-configs; empty when it is not given."""
        if self.topic_configs_file is None:
            return {}
        from tierctl.locallog import read_topic_configs

        return read_topic_configs(self.topic_configs_file)

    @property
    def is_on_spark(self) -> bool:
        """Whether --engine spark was given."""
        return self.spark_settings is not None

    def spark(self) -> "Session":
        """The session of --master and --spark-conf: opened when first asked for, closed at the end.

        UsageError for what Spark can't be started with, EngineError when it does not answer.
        """
        if self.spark_settings is None:
            raise UsageError("this needs Spark", hint="add --engine spark")
        if self._spark is None:
            from tierctl.spark.session.open import opened_session

            self._spark = self._open.enter_context(opened_session(self.spark_settings, say=_say))
        return self._spark

    def executors(self) -> "Executors":
        """Who reads for us, when on Spark; as `spark`."""
        if self._executors is None:
            from tierctl.spark.executors.transport import Executors

            self._executors = Executors(self.spark())
        return self._executors

    @property
    def selection(self) -> Selection:
        """The user partitions of --topic, --partition and --topic-id."""
        return Selection(
            topics=frozenset(self.topic),
            partitions=frozenset(self.partition),
            topic_ids=frozenset(Uuid.parse(text) for text in self.topic_id),
        )

    @property
    def now_ms(self) -> int:
        """The time to decide as of: --now, else the clock."""
        return time.time_ns() // 1_000_000 if self.now is None else self.now


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _spark_settings(ctx: typer.Context) -> SparkSettings | None:
    """Those of --engine spark; UsageError for options of it that are typed without it.

    A profile may have them for other runs.
    """
    given = ctx.params
    if given.get("engine") != "spark":
        for name in ("master", "spark_conf"):
            if is_typed(ctx, name):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} goes with --engine spark", hint=f"add it, or leave {option} out")
        return None
    return SparkSettings.of(
        given["master"],
        given["spark_conf"] or (),
        changes_things="apply" in given,
        verbose=bool(getattr(ctx.obj, "verbose", False)),
    )


def _required(option: str, value: str | None) -> str:
    if value is None:
        variable = "TIERCTL_" + option.strip("-").replace("-", "_").upper()
        raise UsageError(
            f"{option} is missing", hint=f"give it here, as {variable}, or in a profile of tierctl.toml"
        )
    return value
