"""The errors that man pages explain, by what they are about, with their exit codes."""

from collections.abc import Iterator
from typing import NamedTuple

from tierctl.cli.help.node import Node
from tierctl.errors import ExitCode


class Message(NamedTuple):
    """An error: its exit code, its text (`...` for the variable parts), and its meaning."""

    code: ExitCode
    text: str
    meaning: str


class Section(NamedTuple):
    """The errors of a command about one subject."""

    title: str
    introduction: str
    messages: tuple[Message, ...]


def sections(node: Node) -> Iterator[Section]:
    """Yield the sections of a command's man page, in their order."""
    options = {name for option in node.options for name in option.names}
    if node.path == ("copy",):
        yield Section("TOPICS", _COPIED_TOPICS, (*_ENABLED, _NAMES))
    if node.path == ("sweep",):
        yield Section("TOPICS", _SWEPT_TOPICS, (_NAMES,))
    if "--log-dir" in options and node.path in _LOG_READERS:
        yield Section("LOG DIRECTORIES", _LOG_DIRS, (_DUPLICATE,))
    if node.path in _CHECKING:
        yield Section("TIER", _TIERS, (*_TIER, _LEASE) if "--apply" in options else _TIER)


_CHECKING = {(name,) for name in ("copy", "sweep", "delete", "apply", "verify", "fetch", "segments")}
"""The commands that compare the tier with the metadata before anything else."""

_LOG_READERS = {(name,) for name in ("copy", "sweep", "rebuild", "apply", "verify", "fetch", "segments")}
"""The commands that read the logs of partitions."""

_COPIED_TOPICS = """A topic is copied only if its settings have remote.storage.enable=true, as in Kafka.
    Other topics are skipped and reported. With --from-remote no settings are needed."""
_SWEPT_TOPICS = """The topic settings state the retention. Topics with remote.storage.enable=false, and
    compacted topics, are skipped and reported."""
_ENABLED = (
    Message(
        ExitCode.USAGE,
        "no source of topic settings is named, ...",
        """tierctl does not know which topics are enabled: give --topic-configs, --bootstrap-server, or
        --topic and --assume-enabled.""",
    ),
    Message(
        ExitCode.REFUSED,
        "topic NAME is not copied: ...; none of the N selected topics is copied (...): ...",
        """A topic that --topic names, or every topic, can't be copied, for one of three reasons. The setting
        remote.storage.enable is missing: state it, or add --assume-enabled to --topic. Or the setting is
        false. Or cleanup.policy has compact (also as the broker's default log.cleanup.policy in --config),
        which Kafka refuses for tiered topics with INVALID_CONFIG, and --assume-enabled does not override.""",
    ),
)
_NAMES = Message(
    ExitCode.USAGE,
    "--topic-configs states settings of topic NAME, which neither the metadata nor the log directories have",
    """The name is similar to the name of a topic without settings, or no topic of the file is known. Correct
    the name, or also state a setting of the topic with the similar name.""",
)
_LOG_DIRS = """If the log directories of several brokers have logs of a partition, tierctl uses the newest
    log (latest leader epoch, then highest log end offset), and prints a note that names it. tierctl does not
    use folders that a broker moves or deletes (-future, -delete, -stray), and prints a note. The file
    meta.properties states to which broker a directory belongs; a directory without this file counts as that
    of another broker."""
_DUPLICATE = Message(
    ExitCode.CORRUPT,
    "the log of PARTITION: expected one folder on broker N ..., found 2: ...",
    """A broker does not start if its log directories have two current folders of one partition. tierctl
    decides nothing for this partition and continues with the others if the command allows it. Delete the
    folder in the directory that failed last, or do not name that directory.""",
)

_TIERS = """Before anything is planned or read, a few requests compare the tier of --remote with
    --metadata. A wrong tier gives one error:"""
_TIER = (
    Message(
        ExitCode.REFUSED,
        "NAME is the tier of another metadata topic; NAME belongs to ...",
        """The identity in the tier (.tierctl-identity: cluster id, metadata topic id, layout; written before
        the first copy) differs from that of --metadata; or brokers wrote the tier, and --metadata knows none
        of the topics of the examined objects. If the metadata topic was created again, use --adopt-tier with
        copy, sweep, delete or apply.""",
    ),
    Message(
        ExitCode.USAGE,
        "NAME has layout ...; the tier in NAME has layout ...",
        "--layout contradicts the tier's identity or its objects.",
    ),
    Message(
        ExitCode.RETRYABLE,
        "NAME has no object of the finished segments in the metadata; there is no tier at NAME",
        """The folder, bucket or prefix is wrong, or the objects are lost. copy, sweep, delete and apply
        continue with --allow-missing-objects; verify, fetch and segments continue if the identity
        matches.""",
    ),
)
_LEASE = Message(
    ExitCode.REFUSED,
    "NAME: tierctl has no lease for this kind of store; NAME can't be locked",
    """This error occurs only with --apply: tierctl can't lock gs://, abfs://, viewfs:// and file systems
    without locks against another run. With --no-lease it continues without a lock.""",
)
