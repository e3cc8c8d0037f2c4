"""The data of man pages: the tree of Typer's commands, and the errors by subject, with their exit codes."""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from tierctl.cli.app import COMMANDS, GROUPS, HELP_NAMES, load
from tierctl.cli.entry import app
from tierctl.cli.help import Example, examples
from tierctl.errors import ExitCode
from tierctl.read.record_rows import KEY_FORMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option or argument of a command; `choices` is empty if any value is allowed.

    An option that `is_typed_only` has neither an environment variable nor a key in tierctl.toml.
    """

    names: tuple[str, ...]
    metavar: str
    help: str
    panel: str
    choices: tuple[str, ...]
    is_repeatable: bool
    is_required: bool
    default: str | None
    is_typed_only: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether the option has no value."""
        return not self.metavar

    @property
    def explained(self) -> str:
        """The help, followed by the default value."""
        return self.help if self.default is None else f"{self.help} Default: {self.default}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The program, a group or a command; `path` are the words after `tierctl`.

    `group` is the title under which the help of the program lists the command.
    """

    path: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    arguments: tuple[Option, ...]
    children: tuple["Node", ...]
    examples: tuple["Example", ...] = ()
    group: str = "Commands"

    @property
    def summary(self) -> str:
        """The first line of the help, without its full stop."""
        return self.help.partition("\n")[0].removesuffix(".")

    @property
    def usage(self) -> str:
        """The text after the command's name on its usage line: [OPTIONS] and the arguments."""
        rest = "COMMAND [ARGS]..." if self.children else " ".join(map(_usage, self.arguments))
        return f"[OPTIONS] {rest}".strip()

    @property
    def groups(self) -> dict[str, list["Node"]]:
        """The groups and commands below this node by the title under which its help lists them."""
        found: dict[str, list[Node]] = {}
        for child in self.children:
            found.setdefault(child.group, []).append(child)
        return found

    @property
    def panels(self) -> list[str]:
        """The titles of the groups of options, general ones last."""
        found = dict.fromkeys(option.panel for option in self.options)
        return sorted(found, key=lambda panel: panel in {"Options", "Everywhere"})

    def walk(self) -> Iterator["Node"]:
        """Yield this node, and every group and command below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@cache
def command_tree() -> Node:
    """Return the description of the program and of all its commands."""
    root = get_command(app)
    return _node(root, (), tuple(_of(load(name), (name,)) for name in COMMANDS))


def _of(command: Any, path: tuple[str, ...]) -> Node:
    children = command.commands.items() if isinstance(command, TyperGroup) else ()
    return _node(command, path, tuple(_of(child, (*path, name)) for name, child in children))


def _node(command: Any, path: tuple[str, ...], children: tuple[Node, ...]) -> Node:
    ctx = typer.Context(command, info_name=" ".join(("tierctl", *path)), help_option_names=HELP_NAMES)
    params = [param for param in command.get_params(ctx) if not param.hidden]
    typed_only = getattr(command, "typed_only", ())
    described = [(param.param_type_name, _option(param, ctx, typed_only)) for param in params]
    return Node(
        path=path,
        help=inspect.cleandoc(command.help or ""),
        options=tuple(each for kind, each in described if kind == "option"),
        arguments=tuple(each for kind, each in described if kind == "argument"),
        children=children,
        examples=examples().get(" ".join(path), ()),
        group=_group(path),
    )


def _group(path: tuple[str, ...]) -> str:
    found = (title for title, names in GROUPS.items() if len(path) == 1 and path[0] in names)
    return next(found, "Commands")


def _option(param: Any, ctx: typer.Context, typed_only: Sequence[str]) -> Option:
    is_flag = bool(getattr(param, "is_flag", False) or getattr(param, "count", False))
    choices = () if is_flag else _choices(param, ctx)
    return Option(
        # The parser keeps the names of --help in a set: unsorted, the pages would differ between runs.
        names=(*sorted(param.opts, key=lambda name: not name.startswith("--")), *param.secondary_opts),
        metavar="" if is_flag else _metavar(param, choices),
        help=" ".join((param.help or "").split()),
        panel=param.rich_help_panel or "Options",
        choices=choices,
        is_repeatable=bool(getattr(param, "multiple", False) or param.nargs == -1),
        is_required=bool(param.required),
        default=_default(param, is_flag=is_flag),
        is_typed_only=param.name in typed_only,
    )


def _choices(param: Any, ctx: typer.Context) -> tuple[str, ...]:
    """Return the values of an enumeration."""
    found = param.type_descriptor.choices
    return () if found is None else tuple(str(each.value) for each in found)


def _metavar(param: Any, choices: tuple[str, ...]) -> str:
    return str(
        param.metavar or "|".join(choices) or param.opts[-1].removeprefix("--").replace("-", "_").upper()
    )


def _default(param: Any, *, is_flag: bool) -> str | None:
    if is_flag or param.default in (None, (), []):
        return None
    return param.show_default if isinstance(param.show_default, str) else str(param.default)


def _usage(argument: Option) -> str:
    if argument.is_repeatable:
        return f"[{argument.metavar}]..."
    return argument.metavar if argument.is_required else f"[{argument.metavar}]"


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
        deletes = (_UNRECOGNISED,) if "--allow-missing-objects" in options else ()
        yield Section("TIER", _TIERS, (*_TIER, *deletes, _LEASE) if "--apply" in options else _TIER)
    if node.path == ("apply",):
        yield Section("PLAN FILES", _PLANS, _PLAN)
    if node.path in _MUTATING:
        yield Section("REFUSALS", _REFUSALS, tuple(_refusals(node, options)))
    if "--topic" in options or "--metadata" in options:
        yield Section("NAMES AND CONNECTIONS", _NAMED, tuple(_names(options)))


def _refusals(node: Node, options: set[str]) -> Iterator[Message]:
    if "--allow-live-brokers" in options:
        yield _BROKERS
    if "--i-know-it-is-deleted" in options:
        yield _NOT_DELETED
    if "--now" in options:
        yield _AHEAD
    if "--bootstrap-server" in options:
        yield _CLOCK
    yield _NEVER_APPLIED
    yield _TYPED_ONLY
    if "--max-deletes" in options:
        yield from _LIMITS
    if node.path == ("copy",):
        yield _BREACH


def _names(options: set[str]) -> Iterator[Message]:
    if "--topic" in options:
        yield _UNKNOWN_TOPIC
    if "--topic-configs" in options:
        yield _UNKNOWN_SETTING
    if "--override" in options:
        yield _UNKNOWN_OVERRIDE
    yield _UNKNOWN_PROFILE
    yield _FOREIGN_SETTINGS
    yield from _CONNECTIONS
    if "--truncated-metadata" in options:
        yield _MISSING_EVENTS


_MUTATING = {(name,) for name in ("copy", "sweep", "delete", "apply")}
"""The commands that change a tier."""

_READING = {(name,) for name in ("status", "explain", "report", "verify", "fetch", "segments")}
"""The commands that read the metadata, and a tier and logs if they are named."""

_CHECKING = {*_MUTATING, *_READING, ("restore", "new-ids"), ("restore", "log")}
"""The commands that compare the tier with the metadata before anything else."""

_LOG_READERS = {*_MUTATING, *_READING, ("rebuild",)} - {("delete",)}
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
        false. Or cleanup.policy has compact (also as the broker's default log.cleanup.policy in
        --broker-config), which Kafka refuses for tiered topics with INVALID_CONFIG, and --assume-enabled does
        not override.""",
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
    "the log of PARTITION: expected one folder on BROKER, found 2: ...",
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
        copy, sweep, delete, apply or restore new-ids.""",
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
        continue with --allow-missing-objects; commands that only read continue if the identity matches.""",
    ),
)
_UNRECOGNISED = Message(
    ExitCode.RETRYABLE,
    "NAME has neither an identity object nor an object of a segment in the metadata; ...",
    """The metadata have only unfinished deletions and copies. Either the run that was interrupted had
    deleted all objects of the tier, or --remote names another tier. Correct --remote; if it is right, and
    the objects are known to be deleted, use --allow-missing-objects.""",
)
_LEASE = Message(
    ExitCode.REFUSED,
    "NAME: tierctl has no lease for this kind of store; NAME can't be locked; NAME: the store has no writes "
    "on a condition",
    """This error occurs only with --apply: tierctl can't lock gs://, abfs://, viewfs://, stores of S3's
    protocol without conditional writes, and file systems without locks against another run. With --no-lease
    it continues without a lock.""",
)

_PLANS = """A plan is carried out only for the cluster and the tier that it was made for, unchanged, and
    within --max-age. Each step is decided again from the current state; a step that is not decided again is
    dropped, and the reason is printed."""
_PLAN = (
    Message(
        ExitCode.REFUSED,
        "the plan's FIELD: expected ..., found ...",
        """The plan was edited (digest), is too old (created_ms), was made for another cluster
        (cluster_id, metadata_topic_id), tier (tier, layout) or version (plan_version). Plan again.""",
    ),
    Message(
        ExitCode.REFUSED,
        "no step of the plan is still valid, so none was carried out: ...",
        "With --apply: the current settings and log starts produce none of the steps. Plan again.",
    ),
    Message(
        ExitCode.USAGE,
        "OPTION is missing: the plan was decided from ...",
        "Settings or logs from which the plan was decided are not given: repeat the options of the plan.",
    ),
    Message(
        ExitCode.USAGE,
        "OPTION can't be used with a plan of COMMAND",
        "The option has no effect on such a plan: --max-deletes and --max-fraction limit plans of sweep and "
        "verify, and no plan of delete. Leave it out.",
    ),
    Message(
        ExitCode.USAGE,
        "apply can't carry out a plan of ...",
        "The file is a plan of a command that is run by hand only, or no plan.",
    ),
)
_REFUSALS = """With --apply, these errors end a run before its first change. Without --apply, those of exit
    codes 4 and 8 are printed on stderr as "--apply would refuse this", unless the plan itself is wrong."""
_BROKERS = Message(
    ExitCode.REFUSED,
    "brokers may do this work themselves: ...; the broker that runs on DIR may tier these partitions itself",
    """A broker with tiering leads the partition, its settings can't be read, or a broker wrote to the
    metadata partition within ten task intervals. Stop tiering there, or use --allow-live-brokers if it is
    certain that no broker copies or deletes the same segments.""",
)
_NOT_DELETED = Message(
    ExitCode.REFUSED,
    "not known to be deleted: TOPIC (TOPIC_ID): ...; the cluster still has topic TOPIC of id ...",
    """delete --mark needs evidence: the cluster does not know the topic id, or --all-log-dirs and --log-dir
    name the log directories of all replicas, and none has a folder of the topic. For one topic id,
    --i-know-it-is-deleted replaces the evidence.""",
)
_AHEAD = Message(
    ExitCode.REFUSED,
    "the plan is decided as of TIME (--now), N s ahead of the clock, ...",
    "A run with --apply must not decide as of the future. Leave --now or --apply out.",
)
_CLOCK = Message(
    ExitCode.REFUSED,
    "this machine's clock is N s ahead of the controller's, ...",
    "The clock that decides what has expired differs by over five minutes. Synchronize the clocks (NTP).",
)
_NEVER_APPLIED = Message(
    ExitCode.USAGE,
    "...: plans are applied only where the command line says --apply",
    "tierctl.toml has apply = true, or TIERCTL_APPLY is set. Remove it.",
)
_TYPED_ONLY = Message(
    ExitCode.USAGE,
    "...: only the command line may give ...",
    """tierctl.toml or a variable TIERCTL_... states an option that decides what is deleted or weakens a rule
    of safety. Remove it, and write the option into the command.""",
)
_FOREIGN_SETTINGS = Message(
    ExitCode.USAGE,
    "FILE is not read: ... belongs to USER; ... can be written by ...",
    """Somebody else may change tierctl.toml, or its folder. Such a file of the current folder is passed over
    with a warning.""",
)
_LIMITS = (
    Message(
        ExitCode.LIMIT,
        "the plan deletes N segments, more than --max-deletes ...",
        "Check the plan, then narrow the selection or raise the limit.",
    ),
    Message(
        ExitCode.LIMIT,
        "the plan deletes N of the N finished segments of PARTITION, more than --max-fraction ...",
        "Check the plan, then narrow the selection or raise the limit.",
    ),
)
_BREACH = Message(
    ExitCode.LIMIT,
    "N bytes of custom metadata, more than ...",
    """A segment's custom metadata exceed KIP-917's limit. Its objects were deleted, and with --state-dir
    later runs leave the segment out until the limit or the layout changes.""",
)
_NAMED = """A mistyped name ends the run, and the hint lists similar names:"""
_UNKNOWN_TOPIC = Message(
    ExitCode.NOT_FOUND,
    'unknown topic "NAME"; no topic matches "GLOB"; topic "NAME" has no partition N; unknown topic id ID',
    "No metadata, log directory or cluster has such a topic or partition.",
)
_UNKNOWN_SETTING = Message(
    ExitCode.USAGE,
    'FILE, line N: unknown topic setting "NAME"',
    """No Kafka from 3.9 to 4.4 has a topic setting of this name. A value out of Kafka's bounds has exit code
    2, too.""",
)
_UNKNOWN_OVERRIDE = Message(
    ExitCode.USAGE,
    '--override: unknown setting "NAME"',
    "No broker has a setting of this name. In the file of --broker-config it is only a warning.",
)
_UNKNOWN_PROFILE = Message(
    ExitCode.USAGE,
    "no profile ...",
    "tierctl.toml has no such profile. Keys in it, and variables TIERCTL_..., must be those of options.",
)
_CONNECTIONS = (
    Message(
        ExitCode.RETRYABLE,
        "no broker accepts connections at HOST:PORT (OPTION): ...",
        "The brokers do not run, or the option in parentheses names another host or port.",
    ),
    Message(
        ExitCode.RETRYABLE,
        "no server accepts connections at HOST:PORT (OPTION): ...",
        "The same for the server of a store.",
    ),
)
_MISSING_EVENTS = Message(
    ExitCode.CORRUPT,
    "PARTITION is not known to be complete: ...",
    """The retention of the metadata topic deleted events that may be about this partition. Nothing is decided
    for it; other partitions are processed. See --truncated-metadata and tierctl-state(7).""",
)

ERASURE = (
    f"""The file of --without-keys has one key per line, in UTF-8, and each line ends with a line feed:
    {KEY_FORMS}, as for tierctl fetch --erase-report KEY. A line that begins with hex: or base64: is a key in
    that encoding; use these for binary keys, and hex: alone for the empty key. Empty lines, lines that end
    with a carriage return, and a last line without a line feed, which may be part of a key, are refused.""",
    """A record with one of the keys keeps its offset and its timestamp and loses its key, value and headers,
    so consumers read a record with null key and null value. This includes records of aborted transactions.
    The batch of the record is compressed again with the same codec, and gets a new length and a new CRC; its
    other fields and records do not change. A batch without any of the keys keeps its bytes. The new topic
    must not be compacted, because compaction needs keys. restore check reports these records as different
    from the tier.""",
    """For each new partition, restore log writes TOPIC-PARTITION.jsonl to --left-out DIR, also if it has none
    of the keys. The first line of this list names the log, with the sizes of the segments and the SHA-256 of
    the set of keys. Each other line has topic, partition, offset, timestamp, segment id and object of an
    erased record, and the SHA-256 of its key, never the key itself. A short key can be guessed from its
    SHA-256, so protect the lists like the keys. The list is written before the log is renamed to its final
    name. After a killed run, the next run takes a log for finished only if a list with the same keys and a
    valid signature names it. Keys that no restored record has are reported at the end of the run, by the
    numbers of their lines.""",
    """The objects of the tier still contain the records: delete the old topic to erase them. tierctl fetch
    --erase-report KEY names the objects. --sign-with FILE is an Ed25519 private key in PEM (openssl genpkey
    -algorithm ed25519 -out key.pem). The signature is in TOPIC-PARTITION.jsonl.sig: 64 bytes over the whole
    list (RFC 8032). With the public key, OpenSSL 3 verifies the signature:""",
)
"""Paragraphs of tierctl-restore-log(1) about --without-keys."""

VERIFY_LIST = (
    "openssl pkey -in key.pem -pubout -out public.pem",
    "openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in orders-0.jsonl -sigfile orders-0.jsonl.sig",
)
"""Commands that verify the list of orders-0."""
