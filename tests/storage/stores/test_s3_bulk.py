"""Requests to S3 about many keys, with a model of its listings."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tierctl.errors import RemoteStorageError
from tierctl.storage.stores.s3.transfers import delete_objects, listed_objects


class ModelS3:
    """ListObjectsV2 in pages of `page` keys; with `ignores_start`, a server that ignores StartAfter."""

    def __init__(self, objects: Mapping[str, int], page: int, *, ignores_start: bool = False) -> None:
        self.objects = dict(sorted(objects.items()))
        self.page = page
        self.ignores_start = ignores_start
        self.listed = 0

    def list_objects_v2(self, **asked: str) -> Any:
        assert asked["Bucket"] == "bucket"
        self.listed += 1
        after = asked.get("ContinuationToken", "" if self.ignores_start else asked.get("StartAfter", ""))
        found = [key for key in self.objects if key.startswith(asked["Prefix"]) and key > after]
        page = found[: self.page]
        answer: dict[str, Any] = {"IsTruncated": len(found) > len(page)}
        if page:
            answer["Contents"] = [{"Key": key, "Size": self.objects[key]} for key in page]
        if answer["IsTruncated"]:
            answer["NextContinuationToken"] = page[-1]
        return answer


KEYS = st.builds(
    "{}{:02d}{}".format,
    st.sampled_from(["", "a/", "a/b/", "b/"]),
    st.integers(0, 40),
    st.sampled_from(["", ".log", ".x"]),
)


@given(st.dictionaries(KEYS, st.integers(0, 9)), st.sets(KEYS), st.integers(1, 7), st.booleans())
def test_every_key_that_exists_is_found(
    objects: dict[str, int], keys: set[str], page: int, ignores_start: bool
) -> None:
    s3 = ModelS3(objects, page, ignores_start=ignores_start)
    expected = {key: objects[key] for key in keys if key in objects}
    found = listed_objects(s3, "bucket", keys)  # type: ignore[arg-type]
    assert {key: each["Size"] for key, each in found.items()} == expected


@pytest.mark.parametrize(
    ("first", "last", "pages"), [(0, 99, 2), (500, 599, 2), (9_990, 9_999, 1), (0, 9_999, 11)]
)
def test_pages_without_the_keys_are_skipped(first: int, last: int, pages: int) -> None:
    keys = [f"folder/{number:05d}" for number in range(10_000)]
    s3 = ModelS3(dict.fromkeys(keys, 1), 1000)
    found = listed_objects(s3, "bucket", keys[first : last + 1])  # type: ignore[arg-type]
    assert list(found) == keys[first : last + 1]
    assert s3.listed <= pages
    ends = ModelS3(dict.fromkeys(keys, 1), 1000)
    assert set(listed_objects(ends, "bucket", [keys[0], keys[-1]])) == {keys[0], keys[-1]}  # type: ignore[arg-type]
    assert ends.listed == 2


def test_the_result_of_each_key_is_read() -> None:
    class Deleting:
        def delete_objects(self, **asked: Any) -> Any:
            assert asked["Bucket"] == "bucket"
            assert [each["Key"] for each in asked["Delete"]["Objects"]] == ["a", "b", "c", "d"]
            return {
                "Errors": [
                    {"Key": "b", "Code": "AccessDenied", "Message": "Object Lock"},
                    {"Key": "c", "Code": "NoSuchKey", "Message": ""},
                ]
            }

    failed = delete_objects(Deleting(), "bucket", ["a", "b", "c", "d"])  # type: ignore[arg-type]
    assert list(failed) == ["b"]
    assert isinstance(failed["b"], RemoteStorageError)
    assert "s3://bucket/b was not deleted: AccessDenied: Object Lock" in failed["b"].message
