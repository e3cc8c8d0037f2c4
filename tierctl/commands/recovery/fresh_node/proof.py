"""Check that the tier's objects survive a mistake: brokers delete unexpected segments within seconds."""

from tierctl.commands.mutation import Mutation
from tierctl.errors import AuthenticationError, SafetyRefusal
from tierctl.model.uris import canonical_uri
from tierctl.storage import store_uri
from tierctl.storage.base import RemoteStorageManager
from tierctl.storage.identity import tier_name
from tierctl.storage.open import TierSpec
from tierctl.storage.retry import object_tier
from tierctl.storage.stores.inspection import InspectableStore, Versioning
from tierctl.storage.stores.local import LocalStore

_HINT = (
    "make the store deny deletes until the restored topics were checked (a policy, or versioning), or copy "
    "the objects and name the copy with --copy-of-objects; --deletes-are-denied overrides this check"
)
_PROBE = b"written by tierctl restore, to see whether deletes are denied; may be deleted\n"


def require_objects_are_safe(run: Mutation, *, copy: str | None, writes_probe: bool) -> None:
    """Raise SafetyRefusal unless a copy has every object, the bucket keeps versions, or deletes are denied.

    With `writes_probe`, an object of tierctl's own is written and its deletion attempted. Without it, a store
    whose protection only this attempt can show is neither refused nor reported as safe.
    """
    if copy is not None:
        _require_copy(run, copy)
        return
    tier = object_tier(run.remote)
    if tier is None or isinstance(tier.store, LocalStore):
        raise SafetyRefusal(
            f"it is not proven that the objects of {tier_name(run.remote)} can't be deleted", hint=_HINT
        )
    if isinstance(tier.store, InspectableStore) and _is_versioned(tier.store):
        return
    if not writes_probe:
        return
    if not _denies_deletes(run.remote):
        raise SafetyRefusal(
            f"{tier_name(run.remote)} has no versioning, and tierctl could delete its test object",
            hint=_HINT,
        )
    run.progress.warn(
        f"{tier_name(run.remote)} denies deletes with the credentials of this run: make sure that it denies "
        "them with those of the brokers, too"
    )


def _is_versioned(store: InspectableStore) -> bool:
    try:
        return store.bucket.versioning() is Versioning.ENABLED
    except AuthenticationError:
        return False


def _denies_deletes(remote: RemoteStorageManager) -> bool:
    """Return whether the store refuses to delete an object that tierctl writes for this test.

    If it refuses, the object stays in the store: each run uses the same key, and writes it only if it is
    missing.
    """
    tier = object_tier(remote)
    if tier is None:
        return False
    key = tier.own_key("probe")
    if key not in tier.store.sizes_bytes([key]):
        tier.store.put_all({key: _PROBE})
    try:
        errors = tier.store.delete([key])
    except AuthenticationError:
        return True
    return isinstance(errors.get(key), AuthenticationError)


def _require_copy(run: Mutation, uri: str) -> None:
    """Raise SafetyRefusal unless the tier at `uri` has every object with the same size."""
    spec = TierSpec.from_settings(
        store_uri("--copy-of-objects", uri),
        run.resources.broker_settings,
        layout=run.request.layout,
    )
    copy = run.resources.open_tier(spec)
    # Two names of one folder are no copy: deleting the tier's objects would delete both.
    own, other = (canonical_uri("--copy-of-objects", tier_name(each)) for each in (run.remote, copy))
    if own == other:
        raise SafetyRefusal(f"--copy-of-objects {uri} is the tier itself", hint=_HINT)
    there = {each.key: each.size_bytes for each in copy.list_objects()}
    missing = [each for each in run.remote.list_objects() if there.get(each.key) != each.size_bytes]
    if missing:
        size = there.get(missing[0].key)
        found = "lacks it" if size is None else f"has {size} bytes"
        raise SafetyRefusal(
            f"--copy-of-objects {uri} is not a copy of the tier: it differs in {len(missing)} objects; the "
            "first, "
            f"{missing[0].key}, has {missing[0].size_bytes} bytes, the copy {found}",
            hint=_HINT,
        )
