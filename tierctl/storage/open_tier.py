"""Open a remote tier from its description, in this process and on executors.

`file:///dir`, `s3://bucket/folder`, `hdfs://host:port/folder` and the other schemes of
`tierctl.storage.stores`. The path after the bucket is a folder, with or without a `/` at its end; a
key.prefix of Aiven's plugin that is no folder is a setting.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Self

from tierctl.errors import CorruptInputError, RemoteResourceNotFound, RemoteTierMissing, UsageError
from tierctl.files import PLAIN, FileSystem, is_dir
from tierctl.model import ClusterIdentity, TierIdentity, Uuid
from tierctl.model.location import Layout, require_no_credentials, split_uri
from tierctl.model.progress import WAITS
from tierctl.storage.layouts.aiven.layout import MANIFEST, AivenLayout, AivenSettings
from tierctl.storage.layouts.kafka import AIVEN_PATTERN, ROOT_FOLDER, KafkaLayout, SegmentLayout
from tierctl.storage.remote_storage_manager import OWN_PREFIX, RemoteStorageManager, RetrySettings
from tierctl.storage.stores.base import (
    FILE,
    Endpoint,
    ObjectStore,
    StoreAddress,
    open_store_at,
    parse_store_uri,
)
from tierctl.storage.throttle import Throttle, ThrottleSettings
from tierctl.wire.aiven import iceberg

OBJECTS_MAX = 1000
"""Number of keys examined: as many as one request to S3 lists."""

IDENTITIES_MAX = 8
"""Number of identities read to find the layout of a store without segments."""

_IDENTITY = f"{OWN_PREFIX}identity"
_IDENTITY_VERSION = 1
_IDENTITY_MAX_BYTES = 4096

_AIVEN = re.compile(r"(?P<prefix>(?:[^/]+/)*)" + AIVEN_PATTERN + r"\.(?:log|indexes|rsm-manifest)\Z")
_ICEBERG = re.compile(r".*/metadata/[A-Za-z0-9_-]{22}\.puffin\Z")


@dataclass(frozen=True, slots=True)
class DetectedLayout:
    """The name of a layout and, for `aiven`, the folders that all keys begin with."""

    layout: str
    prefix: str = ""


def detect_layouts(store: ObjectStore, *, is_needed: bool = False) -> dict[DetectedLayout, str]:
    """Return the layouts of the first segments in `store`, each with the key of one object.

    OBJECTS_MAX objects are looked at. If none of them is of a segment, but a layout `is_needed`, `kafka` is
    found by the folder that it has, and then what the identity in the tier's own folder states, or in a small
    store those in other folders; raise UsageError if there is none. Raise UnsupportedFormatError for Aiven's
    Iceberg tables, and the errors of `stated_layouts`.
    """
    found: dict[DetectedLayout, str] = {}
    identities: list[str] = []
    count = 0
    for obj in islice(store.list_objects(""), OBJECTS_MAX):
        count += 1
        known = _layout_of(obj.key)
        if known is not None:
            found.setdefault(known, obj.key)
        elif obj.key == _IDENTITY or obj.key.endswith(f"/{_IDENTITY}"):
            identities.append(obj.key)
    if found or not is_needed:
        return found
    has_more = count == OBJECTS_MAX
    if has_more:
        for obj in islice(store.list_objects(f"{ROOT_FOLDER}/"), 1):
            return {DetectedLayout(Layout.KAFKA): obj.key}
    if _IDENTITY in identities or has_more:
        identities = [_IDENTITY]
    found = stated_layouts(store, identities)
    if found or not has_more:
        return found
    raise UsageError(
        f"the layout of {store.name_of('')} is unknown: none of its first {OBJECTS_MAX} objects is of a "
        "segment, and others may follow",
        hint="give --layout, and rsm.config.key.prefix in --broker-config if the plugin has one, or the "
        "tier's own folder as --remote",
    )


def stated_layouts(store: ObjectStore, keys: Sequence[str]) -> dict[DetectedLayout, str]:
    """Return the layouts that the identities under `keys` state, each with its key.

    A tier that was emptied has no other object. The first IDENTITIES_MAX keys are read; missing ones are left
    out, and identities of layout `kafka` in another folder. Raise CorruptInputError for an object that is no
    identity.
    """
    found: dict[DetectedLayout, str] = {}
    for key in keys[:IDENTITIES_MAX]:
        try:
            identity = stored_identity(store, key)
        except CorruptInputError as e:
            raise e.advised("the tier has no segment that shows its layout, so give --layout, too") from None
        if identity is not None and identity.layout == Layout.AIVEN:
            found[DetectedLayout(Layout.AIVEN, key.removesuffix(_IDENTITY))] = key
        elif identity is not None and identity.layout == Layout.KAFKA and key == _IDENTITY:
            found[DetectedLayout(Layout.KAFKA)] = key
    return found


def require_no_tier(option: str, folder: Path) -> None:
    """Raise UsageError if the folder that `option` names is a tier on local disk, with segments, or in one.

    Files of tierctl in it would be unknown objects of the tier.
    """
    has_kafka = folder.absolute().name == ROOT_FOLDER or is_dir(folder / ROOT_FOLDER)
    if has_kafka or any(folder.glob(f"*/*/*{MANIFEST}")):
        raise UsageError(f"{option} {folder} is a remote tier", hint="name a folder of its own")
    for above in folder.resolve().parents:
        # Folders above may have any entries, also mounts that don't answer: only a topic's partition 0 is
        # looked for, by its topic's name and id.
        if above.name == ROOT_FOLDER or any(above.glob(f"*-{'?' * 22}/0/*{MANIFEST}")):
            raise UsageError(
                f"{option} {folder} is in a remote tier, {above}", hint="name a folder elsewhere"
            )


def _layout_of(key: str) -> DetectedLayout | None:
    if key.startswith(f"{ROOT_FOLDER}/"):
        return DetectedLayout(Layout.KAFKA)
    if _ICEBERG.match(key):
        raise iceberg(f"the object {key!r}")
    match = _AIVEN.match(key)
    return None if match is None else DetectedLayout(Layout.AIVEN, match["prefix"])


def stored_identity(store: ObjectStore, key: str) -> TierIdentity | None:
    """Return the identity of a tier that lies under `key`; None if there is none.

    Raise CorruptInputError if the object is no identity, and RemoteTierMissing if there is no tier.
    """
    try:
        with store.open(key) as stream:
            body = stream.read(_IDENTITY_MAX_BYTES + 1)
    except RemoteResourceNotFound:
        return None
    return _decoded(body, store.name_of(key))


def encoded_identity(identity: TierIdentity) -> bytes:
    """Return the content of the object that states the identity of a tier."""
    facts = {
        "tier_identity": _IDENTITY_VERSION,
        "cluster_id": identity.cluster.cluster_id,
        "metadata_topic_id": identity.cluster.metadata_topic_id,
        "layout": identity.layout,
    }
    return json.dumps(facts, indent=1).encode() + b"\n"


def _decoded(body: bytes, source: str) -> TierIdentity:
    facts: Any = None
    with suppress(ValueError, RecursionError):
        facts = json.loads(body) if len(body) <= _IDENTITY_MAX_BYTES else None
    if isinstance(facts, dict) and facts.get("tier_identity") == _IDENTITY_VERSION:
        cluster_id, topic_id = facts.get("cluster_id"), facts.get("metadata_topic_id")
        if isinstance(cluster_id, str | None) and isinstance(topic_id, str | None):
            with suppress(UsageError):
                cluster = ClusterIdentity(
                    cluster_id=cluster_id,
                    metadata_topic_id=None if topic_id is None else Uuid.parse(topic_id),
                )
                return TierIdentity(cluster=cluster, layout=str(facts.get("layout")))
    raise CorruptInputError(
        "the tier's identity",
        expected=f"JSON with tier_identity {_IDENTITY_VERSION}, cluster_id and metadata_topic_id",
        found=ascii(body[:40]),
        source=source,
        hint="if --remote and --metadata are right, copy, sweep, delete, apply or restore new-ids, with "
        "--adopt-tier and --apply, writes it again",
    )


@dataclass(frozen=True, slots=True)
class TierSpec:
    """Describe a remote tier and how to open it; picklable, so that executors open the same tier.

    If `layout` is None, `open_tier` detects the layout of the objects in the store, or takes it from the
    tier's identity; for an empty store it is `kafka` on local disk and `aiven` elsewhere. `aiven` has the
    settings of layout `aiven`. With `retry`, failed calls are repeated. The spec contains no credentials:
    private keys are names of files, and each process reads credentials from its own environment.
    """

    uri: str
    _: KW_ONLY
    layout: SegmentLayout | str | None = None
    aiven: AivenSettings = field(default_factory=AivenSettings)
    retry: RetrySettings | None = None
    endpoint: Endpoint | None = None
    throttle: ThrottleSettings = field(default_factory=ThrottleSettings)
    """The limits of a process that opens the tier without a `Throttle` of its own."""

    def __post_init__(self) -> None:
        if isinstance(self.layout, str) and self.layout not in tuple(Layout):
            raise UsageError(f"unknown layout {self.layout!r}", hint=f"expected one of {', '.join(Layout)}")

    @classmethod
    def from_settings(
        cls,
        uri: str,
        settings: Mapping[str, str],
        *,
        layout: str | None = None,
        private_keys: Mapping[str, Path] | None = None,
        retry: RetrySettings | None = None,
    ) -> Self:
        """Return the spec of the tier at `uri` by a broker's settings.

        `private_keys` (by key id, "" for every id) take precedence over those in `settings`. Without `retry`,
        calls are repeated as `settings` says, but not on local disk, where a repeated call fails again.
        """
        aiven = AivenSettings.from_settings(settings)
        # Executors have other working directories.
        given = {name: path.absolute() for name, path in (private_keys or {}).items()}
        aiven = replace(aiven, private_keys={**aiven.private_keys, **given})
        if retry is None and split_uri("--remote", uri).scheme != FILE:
            retry = RetrySettings.from_settings(settings)
        throttle = ThrottleSettings.from_settings(settings)
        return cls(uri, layout=layout, aiven=aiven, retry=retry, throttle=throttle)

    def resolved(self, remote: RemoteStorageManager) -> Self:
        """Return this spec with the layout, endpoint and retry settings of `remote`, which it opened.

        An executor that opens the result detects nothing. Raise UsageError for a URI with credentials.
        """
        require_no_credentials("--remote", self.uri)
        return replace(self, layout=remote.layout, endpoint=remote.store.endpoint, retry=remote.retry)

    def shared(self, by: Callable[[], int]) -> Self:
        """Return this spec for one of `by()` processes that share its limits, if it has limits."""
        return replace(self, throttle=self.throttle.shared(by())) if self.throttle.is_limited else self


def open_tier(
    spec: TierSpec,
    *,
    files: FileSystem = PLAIN,
    throttle: Throttle | None = None,
) -> RemoteStorageManager:
    """Open the tier that `spec` describes; nothing is created before the first copy.

    `files` makes the changes of a tier on local disk. `throttle` limits the transfers of a run and gets the
    limits of `spec`; without it the tier has its own. Raise UsageError for an unknown scheme or layout, for
    several tiers in one place, and for a missing package.
    """
    if throttle is None:
        throttle = Throttle()
    throttle.limit(spec.throttle)
    address = parse_store_uri(spec.uri, endpoint=spec.endpoint, files=files)
    address = replace(address, throttle=throttle)
    names_root_folder = _names_root_folder(address, spec.layout)
    if names_root_folder:
        address = replace(address, folder=address.folder.removesuffix(f"{ROOT_FOLDER}/"))
    with WAITS.waiting(f"connecting to {spec.uri}"):
        store = open_store_at(address)
    if spec.layout is None or isinstance(spec.layout, str):
        name = Layout.KAFKA if names_root_folder else spec.layout
        with WAITS.waiting(f"looking for the layout of {store.name_of('')}"):
            layout = _named_or_detected(name, store, address, spec.aiven)
    else:
        layout = spec.layout
    if address.scheme == FILE:
        # The layout's folder must exist before objects count as deleted: the disk may not be mounted.
        store = open_store_at(replace(address, required_folder=layout.base))
    return RemoteStorageManager(store, layout, spec.retry)


def _names_root_folder(address: StoreAddress, layout: SegmentLayout | str | None) -> bool:
    """Return whether the URI names layout `kafka`'s own folder in the tier instead of the tier."""
    path = PurePosixPath("/", address.folder)
    is_kafka = layout is None or layout == Layout.KAFKA or isinstance(layout, KafkaLayout)
    if path.name != ROOT_FOLDER or not is_kafka:
        return False
    # A broker whose rsm.config.dir has that name creates another folder of the same name inside.
    return address.scheme != FILE or not _has_root_folder(Path(path))


def _has_root_folder(folder: Path) -> bool:
    """Return whether a folder has layout `kafka`'s own one; the store reports a folder that can't be read."""
    try:
        return is_dir(folder / ROOT_FOLDER)
    except PermissionError:
        return False


def _named_or_detected(
    name: str | None, store: ObjectStore, address: StoreAddress, aiven: AivenSettings
) -> SegmentLayout:
    """Return the layout called `name`; if `name` is None, that of the objects in `store`, or of its identity.

    Raise UsageError if `store` has segments of another layout than `name` and none of `name`.
    """
    is_local = address.scheme == FILE
    if name != Layout.AIVEN and is_local and _has_root_folder(Path("/", address.folder)):
        return KafkaLayout()
    found = None
    try:
        found = _detected(name, store, aiven)
        if found is None and name is None and aiven.key_prefix is not None:
            # The folder of the prefix is no folder above, so nothing is listed: both places are asked.
            own = f"{_key_prefix(None, aiven, address.folder)}{_IDENTITY}"
            found = next(iter(stated_layouts(store, [own, _IDENTITY])), None)
    except RemoteTierMissing:
        # The first copy creates the folder.
        if not is_local and name != Layout.KAFKA:
            raise
    if (found.layout if found else name or (Layout.KAFKA if is_local else Layout.AIVEN)) == Layout.KAFKA:
        return KafkaLayout()
    return AivenLayout(aiven, key_prefix=_key_prefix(found, aiven, address.folder), root=address.folder)


def _detected(name: str | None, store: ObjectStore, aiven: AivenSettings) -> DetectedLayout | None:
    """Return the layout of the segments in `store`, None if there are none."""
    found = detect_layouts(store, is_needed=name is None and aiven.key_prefix is None)
    named = {layout: key for layout, key in found.items() if name in {None, layout.layout}}
    if found and not named and not _has_others(store, next(iter(found))):
        other, key = next(iter(found.items()))
        raise UsageError(
            f"--layout {name}: the tier in {store.name_of('')} has layout {other.layout}, as {key!r} shows",
            hint=f"check --remote. To use this tier: --layout {other.layout}, or leave --layout out",
        )
    if len(named) > 1 and (name is None or aiven.key_prefix is None):
        raise UsageError(
            f"the store has several tiers: {', '.join(repr(key) for key in sorted(named.values()))}",
            hint="choose one by --layout, a longer --remote, or rsm.config.key.prefix in --broker-config",
        )
    return next(iter(named), None)


def _has_others(store: ObjectStore, found: DetectedLayout) -> bool:
    """Return whether the store's top folder shows a tier of another layout than `found`, listed later."""
    folders = store.list_folder("").folders
    return any((folder == f"{ROOT_FOLDER}/") != (found.layout == Layout.KAFKA) for folder in folders)


def _key_prefix(found: DetectedLayout | None, aiven: AivenSettings, folder: str) -> str:
    """Return the plugin's key.prefix relative to `folder`, in which the store begins."""
    prefix = aiven.key_prefix
    if prefix is None:
        return found.prefix if found else ""
    # --remote may name the folder that the plugin reaches from its bucket by the prefix.
    return "" if folder == prefix or folder.endswith(f"/{prefix}") else prefix
