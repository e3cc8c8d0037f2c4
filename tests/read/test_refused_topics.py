"""`fetch` of topics whose objects are refused for lack of rights: one error, unless a record was read."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tierctl.errors import ExitCode

from tests.cli.shell import tierctl
from tests.support.lacking_store import BUCKET, LackingStore

PARTITIONS = {"clicks-0", "clicks-1", "orders-0", "orders-1", "orders-2"}
"""Each one of clicks has 3 segments, each one of orders 5."""


@pytest.mark.parametrize(
    ("forbidden", "code", "unread", "errors"),
    [
        ("", ExitCode.OK, set(), 0),
        # The other partitions are read: an error for each segment, and for the leader epochs.
        ("/clicks-0-", ExitCode.CORRUPT, {"clicks-0"}, 4),
        ("/orders-1-", ExitCode.CORRUPT, {"orders-1"}, 6),
        # Nothing of the topic is read: it is given up at the fifth object, and the next topic is read.
        ("/clicks-", ExitCode.CORRUPT, {"clicks-0", "clicks-1"}, 1),
        ("/kafka-tiered-storage/", ExitCode.AUTHENTICATION, PARTITIONS, 2),
    ],
)
def test_errors_of_refused_objects(
    capture: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    *,
    forbidden: str,
    code: ExitCode,
    unread: set[str],
    errors: int,
) -> None:
    root = capture("tiered-cluster")
    remote = root / "before-remote"
    with LackingStore() as store:
        store.found(monkeypatch)
        files = filter(Path.is_file, remote.rglob("*"))
        store.put({f"a/{path.relative_to(remote)}": path.read_bytes() for path in files})
        store.forbidden = forbidden
        ran = tierctl(
            *("fetch", "--metadata", root / "before", "--remote", f"s3://{BUCKET}/a", "--layout", "kafka"),
            *("--topic", "clicks", "--topic", "orders"),
            *("--columns", "topic,partition", "-o", "csv", "--no-header"),
        )
        assert ran.code == code, ran.err
        assert {line.replace(",", "-") for line in ran.lines} == PARTITIONS - unread
        assert ran.err.count("error: ") == errors, ran.err
        assert ran.err.count("the first 5 objects are all refused") == (errors if errors < 3 else 0)
        assert unread != PARTITIONS or store.count(f"GET /{BUCKET}/a/kafka-tiered-storage/") <= 10
