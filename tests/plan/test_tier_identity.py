"""Whether a tier belongs to the metadata, by identity and objects: every combination."""

import pytest
from tierctl.errors import RemoteTierMissing, SafetyRefusal, TierctlError, UsageError
from tierctl.model import ClusterIdentity, TierIdentity, Uuid
from tierctl.plan.preconditions import TierContents, check_tier, require_recognised

TOPIC, OTHER_TOPIC = Uuid("2QZ5FAXaQrqgUzsReWnweA"), Uuid("Qwn_wKgZbeaSNpD3Nhsgvw")
BOTH = ClusterIdentity(cluster_id="c1", metadata_topic_id=TOPIC)
ONLY_CLUSTER = ClusterIdentity(cluster_id="c1", metadata_topic_id=None)
ONLY_TOPIC = ClusterIdentity(cluster_id=None, metadata_topic_id=TOPIC)
NOTHING = ClusterIdentity(cluster_id=None, metadata_topic_id=None)
OTHER_CLUSTER = ClusterIdentity(cluster_id="c2", metadata_topic_id=TOPIC)
RECREATED = ClusterIdentity(cluster_id="c1", metadata_topic_id=OTHER_TOPIC)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (BOTH, BOTH, True),
        (BOTH, ONLY_CLUSTER, True),
        (BOTH, ONLY_TOPIC, True),
        (BOTH, OTHER_CLUSTER, False),
        (BOTH, RECREATED, False),
        (ONLY_TOPIC, RECREATED, False),
        (ONLY_CLUSTER, OTHER_CLUSTER, False),
        (ONLY_CLUSTER, ONLY_TOPIC, None),
        (NOTHING, BOTH, None),
        (NOTHING, NOTHING, None),
    ],
)
def test_ids_that_both_know_decide(one: ClusterIdentity, other: ClusterIdentity, same: bool | None) -> None:
    assert one.is_same_as(other) is same
    assert other.is_same_as(one) is same


EMPTY: dict[str, object] = {}
"""No finished segment in the metadata, and no object in the tier."""
FOUND: dict[str, object] = {"known": True}
LOST: dict[str, object] = {"missing": "/tier/00-x.log"}
LOST_OTHERS: dict[str, object] = LOST | {"unknown_key": "other-0/y.log", "is_foreign": True}
FOREIGN: dict[str, object] = {"unknown_key": "other-0/y.log", "is_foreign": True}
LEAKED: dict[str, object] = {"unknown_key": "other-0/y.log"}
READ, LOSS, ADOPT = {"is_reading": True}, {"allow_missing_objects": True}, {"adopt": True}
NEVER: dict[str, bool] = {}
REFUSED, WRONG, OK = SafetyRefusal, RemoteTierMissing, None

CASES = [
    # The tier's identity, that of the metadata, the tier's objects, options, and the error.
    (None, BOTH, EMPTY, NEVER, OK),
    (None, BOTH, FOUND, NEVER, OK),
    (None, NOTHING, FOUND, NEVER, OK),
    (None, BOTH, LOST, NEVER, WRONG),
    (None, BOTH, LOST, READ, WRONG),
    (None, BOTH, LOST, LOSS, OK),
    (None, BOTH, LOST_OTHERS, NEVER, WRONG),
    (None, BOTH, FOREIGN, NEVER, REFUSED),
    (None, BOTH, FOREIGN, READ, REFUSED),
    (None, BOTH, FOREIGN, ADOPT, OK),
    (None, BOTH, LEAKED, NEVER, OK),
    (BOTH, BOTH, EMPTY, NEVER, OK),
    (BOTH, BOTH, FOUND, NEVER, OK),
    (BOTH, BOTH, LOST, NEVER, WRONG),
    (BOTH, BOTH, LOST, LOSS, OK),
    (BOTH, BOTH, LOST, READ, OK),
    (BOTH, BOTH, LOST, ADOPT, WRONG),
    (BOTH, BOTH, FOREIGN, NEVER, OK),
    *(
        (BOTH, other, contents, options, REFUSED)
        for other in (OTHER_CLUSTER, RECREATED)
        for contents in (EMPTY, FOUND, LOST, FOREIGN)
        for options in (NEVER, READ, LOSS)
    ),
    (BOTH, RECREATED, FOUND, ADOPT, OK),
    (BOTH, RECREATED, LOST, ADOPT, WRONG),
    (BOTH, RECREATED, LOST, ADOPT | LOSS, OK),
    # Neither identity is known: the objects decide; without objects the tier belongs to another topic.
    (BOTH, NOTHING, FOUND, NEVER, OK),
    (BOTH, NOTHING, EMPTY, NEVER, REFUSED),
    (BOTH, NOTHING, EMPTY, ADOPT, OK),
    (BOTH, NOTHING, LOST, READ, WRONG),
    (NOTHING, BOTH, EMPTY, NEVER, OK),
    (NOTHING, NOTHING, FOREIGN, NEVER, REFUSED),
]


@pytest.mark.parametrize(("identity", "own", "objects", "options", "error"), CASES)
def test_whose_tier_it_is(
    identity: ClusterIdentity | None,
    own: ClusterIdentity,
    objects: dict[str, object],
    options: dict[str, bool],
    error: type[TierctlError] | None,
) -> None:
    stored = None if identity is None else TierIdentity(cluster=identity, layout="kafka")
    contents = TierContents(name="/tier", layout="kafka", identity=stored, **objects)  # type: ignore[arg-type]
    if error is None:
        note = check_tier(contents, own, **options)
        is_unclear = identity is not None and identity.is_same_as(own) is None and not options.get("adopt")
        assert (note is not None) == is_unclear
        return
    with pytest.raises(error, match="/tier") as raised:
        check_tier(contents, own, **options)
    assert raised.value.hint is not None
    if error is SafetyRefusal:
        assert str(own) in raised.value.message
        assert identity is None or str(identity) in raised.value.message or objects.get("is_foreign")


@pytest.mark.parametrize(
    ("identity", "objects", "error"),
    [
        (None, {"begun": "/tier/00-x.log"}, WRONG),
        (None, {"begun": "/tier/00-x.log", "unknown_key": "other-0/y.log"}, WRONG),
        (None, {"begun": "/tier/00-x.log", "known": True}, OK),
        (None, {}, OK),
        (BOTH, {"begun": "/tier/00-x.log"}, OK),
    ],
)
def test_where_begun_deletions_may_go_on(
    identity: ClusterIdentity | None, objects: dict[str, object], error: type[TierctlError] | None
) -> None:
    stored = None if identity is None else TierIdentity(cluster=identity, layout="kafka")
    contents = TierContents(name="/tier", layout="kafka", identity=stored, **objects)  # type: ignore[arg-type]
    if error is None:
        require_recognised(contents)
        return
    with pytest.raises(error, match="neither an identity object nor an object of a segment"):
        require_recognised(contents)


@pytest.mark.parametrize("missing", ["tier/log", None])
def test_objects_of_the_metadata_in_another_folder_are_no_tier(missing: str | None) -> None:
    key = "tier/kafka-tiered-storage/orders-0-AAAAAAAAAAAAAAAAAAAAAQ/x.log"
    contents = TierContents(name="/", layout="aiven", identity=None, missing=missing, misplaced_key=key)
    with pytest.raises(RemoteTierMissing, match=f"it has {key}"):
        check_tier(contents, BOTH)
    assert check_tier(contents, BOTH, allow_missing_objects=True) is None


def test_another_layout_is_a_usage_error() -> None:
    stored = TierIdentity(cluster=BOTH, layout="aiven")
    contents = TierContents(name="/tier", layout="kafka", identity=stored, known=True)
    with pytest.raises(UsageError, match="has layout aiven, not kafka"):
        check_tier(contents, BOTH)
