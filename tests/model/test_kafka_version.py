"""Versions of Kafka: their names, their feature levels, and their features."""

import pytest
from tierctl.errors import ExitCode, UsageError
from tierctl.model.settings.scopes import KNOWN, LATEST, KafkaVersion


@pytest.mark.parametrize(
    ("text", "version"),
    [("3.6", (3, 6)), ("3.9.1", (3, 9)), ("4.0.0", (4, 0)), (" 4.4 ", (4, 4)), ("4.4.0", (4, 4))],
)
def test_names(text: str, version: tuple[int, int]) -> None:
    assert KafkaVersion.parse(text) == KafkaVersion(*version)


@pytest.mark.parametrize(
    "text", ["", "4", "3.5", "4.5", "4.4.0.1", "4.4-rc1", "v4.4", "44", "0.0", "3.09", "03.9"]
)
def test_names_of_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not known") as caught:
        KafkaVersion.parse(text)
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.hint == "known versions: 3.6, 3.7, 3.8, 3.9, 4.0, 4.1, 4.2, 4.3, 4.4"


@pytest.mark.parametrize(
    ("level", "version"),
    # MetadataVersion.featureLevel: the last production level of 3.6.2 is 14, of 4.3.0 is 30, of 4.4.0 is 33.
    [
        *((1, "3.6"), (14, "3.6"), (15, "3.7"), (20, "3.8"), (21, "3.9"), (25, "4.0"), (26, "4.1")),
        *((27, "4.1"), (29, "4.2"), (30, "4.3"), (31, "4.4"), (33, "4.4"), (99, "4.4")),
    ],
)
def test_feature_levels(level: int, version: str) -> None:
    assert str(KafkaVersion.of_feature_level(level)) == version


def test_what_differs() -> None:
    assert {str(v) for v in KNOWN if v.expires_at_cutoff} == {"3.6", "3.7", "3.8", "3.9", "4.0", "4.1", "4.2"}
    assert {str(v) for v in KNOWN if not v.has_txn_index_empty} == {"3.6", "3.7", "3.8", "3.9"}
    assert {str(v) for v in KNOWN if v.has_earliest_pending_upload} == {"4.2", "4.3", "4.4"}
    assert {str(v) for v in KNOWN if v.cleans_without_policy} == {"4.2", "4.3", "4.4"}
    assert max(KNOWN) == LATEST


@pytest.mark.parametrize(
    ("version", "since", "until", "included"),
    [
        ("3.6", "0", None, True),
        ("3.9", "3.9", None, True),
        ("3.8", "3.9", None, False),
        ("4.3", "4.4", None, False),
        ("4.4", "4.4", None, True),
        ("4.0", "0", "3.9", False),
        ("3.9", "0", "3.9", True),
        ("4.4", "KIP-405", None, False),
    ],
)
def test_what_a_version_includes(version: str, since: str, until: str | None, included: bool) -> None:
    assert KafkaVersion.parse(version).includes(since, until) is included
