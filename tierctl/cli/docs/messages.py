"""The errors that man pages explain, by what they are about, with their exit codes."""

from collections.abc import Iterator
from typing import NamedTuple

from tierctl.cli.help.node import Node
from tierctl.errors import ExitCode


class Message(NamedTuple):
    """An error: its exit code, its text with `...` for what differs, and what it means."""

    code: ExitCode
    text: str
    meaning: str


class Section(NamedTuple):
    """The errors of a command about one thing."""

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

_COPIED_TOPICS = """Tiering is opt-in, as for brokers: a topic is copied if remote.storage.enable=true
    is among its settings. Other topics are left out and reported. With --from-remote no settings are
    needed."""
_SWEPT_TOPICS = """Retention is that of the settings. Topics with remote.storage.enable=false, and
    compacted topics, are left out and reported."""
_ENABLED = (
    Message(
        ExitCode.USAGE,
        "no topic settings are named, ...",
        """Nothing states which topics are enabled: give --topic-configs, --bootstrap-server, or --topic and
        --assume-enabled.""",
    ),
    Message(
        ExitCode.REFUSED,
        "topic NAME is not copied: ...; none of the N selected topics is copied (...): ...",
        """A topic that --topic names, or every topic, may not be copied. Either the setting is missing: state
        it, or add --assume-enabled to --topic; or it is false; or cleanup.policy has compact (also as the
        broker's default log.cleanup.policy in --config), which Kafka refuses with INVALID_CONFIG, and which
        --assume-enabled does not override.""",
    ),
)
_NAMES = Message(
    ExitCode.USAGE,
    "--topic-configs states settings of topic NAME, which neither the metadata nor the log directories have",
    """The name resembles that of a topic without settings; or no topic of the file is known. Correct the
    name, or state a setting of the other topic, too.""",
)
_LOG_DIRS = """Of the logs that several brokers have of a partition the newest is used (latest leader
    epoch, then log end), and a note says which one. Folders that a broker moves or deletes (-future,
    -delete, -stray) are not used, and a note says so. Brokers are told apart by meta.properties; a
    directory without it counts as that of another broker."""
_DUPLICATE = Message(
    ExitCode.CORRUPT,
    "the log of PARTITION: expected one folder on broker N ..., found 2: ...",
    """A broker with two current folders of a partition in its log directories does not start. Nothing is
    decided for the partition; the others are served where the command can. Delete the folder in the directory
    that failed last, or leave that directory out.""",
)

_TIERS = """Before anything is planned or read, a few requests compare the tier of --remote with
    --metadata. A wrong tier gives one error:"""
_TIER = (
    Message(
        ExitCode.REFUSED,
        "NAME is the tier of another metadata topic; NAME belongs to ...",
        """The identity in the tier (.tierctl-identity: cluster id, metadata topic id, layout; written before
        the first copy) is not that of --metadata; or, in a tier that brokers wrote, --metadata knows none of
        the topics of the objects looked at. If the metadata topic was created again: --adopt-tier with
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
        """The folder, bucket or prefix is another one, or the objects are lost. copy, sweep, delete and apply
        go on with --allow-missing-objects; verify, fetch and segments go on if the identity matches.""",
    ),
)
_LEASE = Message(
    ExitCode.REFUSED,
    "NAME: tierctl has no lease for this kind of store; NAME can't be locked",
    """With --apply only: nothing keeps another tierctl out of gs://, abfs://, viewfs:// and file systems
    without locks. --no-lease goes on.""",
)
