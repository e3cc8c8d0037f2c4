"""A warehouse in a bucket: the same tables as in a folder, after whatever stopped a run on the way."""

from pathlib import Path

import pytest
from tierctl.errors import LockedError
from tierctl.pipeline.warehouse.base import TABLES
from tierctl.storage import open_store
from tierctl.storage.lease import ObjectLease

from tests.metadata.events import started, update
from tests.pipeline.tables import Rows, pipeline, rows_of, run, write
from tests.pipeline.test_warehouse import Killed, lives
from tests.support.servers import S3Server

ENDS = {0: 3, 1: 9, 2: 5, 3: 2}


def rows_in(uri: str, folder: Path) -> Rows:
    """The tables' rows, by way of a folder that has what their folders in the bucket have."""
    store = open_store(uri)
    for table in ("events", *TABLES):
        for found in store.list_objects(f"{table}/"):
            path = folder / found.key
            path.parent.mkdir(parents=True, exist_ok=True)
            with store.open(found.key) as stream:
                path.write_bytes(stream.read())
    store.close()
    return rows_of(folder)


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    folder = tmp_path / "topic"
    write(folder, [*lives(range(10)), update(77), b"\x01\x63\x00", started(40)])
    return folder


def stopped_at(nth: int, topic: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run, and stop before the nth change of the bucket; whether there were so many."""
    from tierctl.storage.stores.s3.store import S3Store

    changes = 0

    def watched(name: str) -> object:
        real = getattr(S3Store, name)

        def call(self: S3Store, *args: object) -> object:
            nonlocal changes
            if "_lease.json" not in str(args[0]):
                changes += 1
                if changes == nth:
                    raise Killed
            return real(self, *args)

        return call

    with monkeypatch.context() as patched:
        for name in ("put_all", "put_if", "copy", "delete"):
            patched.setattr(S3Store, name, watched(name))
        try:
            run(topic, uri)
        except Killed:
            return True
    return False


def test_the_same_tables_wherever_it_stops(
    topic: Path, tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_server.bucket()
    run(topic, tmp_path / "expected")
    expected = rows_of(tmp_path / "expected")
    stops = 0
    for nth in range(1, 200, 3):
        uri = f"s3://{bucket}/warehouse-{nth}"
        with pipeline(topic, uri).opened() as opened:
            opened.step(ENDS)
        was_stopped = stopped_at(nth, topic, uri, monkeypatch)
        run(topic, uri)
        assert rows_in(uri, tmp_path / f"seen-{nth}") == expected
        if not was_stopped:
            break
        stops += 1
    assert stops >= 4


def test_a_table_that_becomes_empty(tmp_path: Path, s3_server: S3Server) -> None:
    """What a metadata partition has no more rows of goes, and the columns stay."""
    uri, topic = f"s3://{s3_server.bucket()}", tmp_path / "topic"
    write(topic, [started(1)])
    run(topic, uri)
    assert [row["kind"] for row in rows_in(uri, tmp_path / "1")["anomalies"]] == ["dangling_copy"]
    write(topic, [update(1)])
    run(topic, uri)
    rows = rows_in(uri, tmp_path / "2")
    assert (rows["anomalies"], len(rows["segments"]), len(rows["events"])) == ([], 1, 2)


def test_one_pipeline_at_a_time(topic: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"s3://{s3_server.bucket()}/warehouse"
    with pipeline(topic, uri).opened() as first:
        with pytest.raises(LockedError, match="another tierctl"), pipeline(topic, uri).opened():
            pass
        assert first.step(ENDS).commit == 1
        # Paused for so long that another may have it by now.
        monkeypatch.setattr(ObjectLease, "is_lost", lambda _lease: True)
        with pytest.raises(LockedError, match="lease"):
            first.step()
    monkeypatch.undo()
