"""A warehouse in a bucket: its lease, two writers, readers, and secrets; the tables are those of a folder."""

import os
import pickle
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal
from tierctl.errors import LockedError
from tierctl.pipeline import warehouse as warehouse_open
from tierctl.pipeline.commits import LakeTable
from tierctl.pipeline.warehouse import COMMITS
from tierctl.storage.lease import ObjectLease

from tests.pipeline.tables import TABLES, lives, pipeline, read, rows_of, run, run_once, step, write
from tests.pipeline.test_warehouse_changes import race
from tests.support.servers import SECRET, S3Server

ENDS = {0: 3, 1: 9, 2: 5, 3: 2}


def test_one_pipeline_at_a_time(topic: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"s3://{s3_server.bucket()}/warehouse"
    with pipeline(topic, uri).opened() as first:
        with pytest.raises(LockedError, match="another tierctl"), pipeline(topic, uri).opened():
            pass
        assert step(first, ENDS).commit == 1
        # The run was paused for so long that another run may have the lease.
        monkeypatch.setattr(ObjectLease, "is_lost", lambda _lease: True)
        with pytest.raises(LockedError, match="lease"):
            step(first)
    monkeypatch.undo()


def test_of_two_writers_one_commits(
    topic: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store creates each version of a table for only one of them."""
    uri = f"s3://{s3_server.bucket()}/warehouse"
    monkeypatch.setattr(warehouse_open, "ObjectLease", lambda *_, **__: nullcontext())
    run(topic, uri)
    write(topic, lives(range(82, 83)))
    assert race(topic, uri) == [0, 2]
    assert rows_of(uri) == run_once(topic)


def test_readers_of_a_bucket_and_no_secret_in_it(topic: Path, s3_server: S3Server) -> None:
    """Programs read the tables as they are stored, with their own credentials, and earlier versions, too.

    Neither the bucket nor the data for executors contain the credentials.
    """
    uri = f"s3://{s3_server.bucket()}/warehouse"
    run(topic, uri)
    write(topic, lives(range(80, 82)))
    run(topic, uri)
    own = {
        name.lower(): os.environ[name]
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    }
    own |= {"aws_endpoint_url": s3_server.endpoint, "aws_allow_http": "true"}
    for table in TABLES:
        expected = read(uri, table)
        by_polars = pl.scan_delta(f"{uri}/{table}", storage_options=own).collect()
        assert_frame_equal(by_polars, pl.DataFrame(expected), check_row_order=False)
        opened = DeltaTable(f"{uri}/{table}", storage_options=own)
        assert opened.history(1)[0]["tierctl.commit"] == "2"
        by_pandas = opened.to_pandas()
        assert by_pandas.columns.tolist() == expected.column_names
        assert len(by_pandas) == expected.num_rows
    first = pl.scan_delta(f"{uri}/events", version=1, storage_options=own).collect()
    assert 0 < first.height < read(uri, "events").num_rows

    warehouse = pipeline(topic, uri).warehouse
    store, texts = warehouse.open_store(), [pickle.dumps(warehouse)]
    texts += [store.open(found.key).read() for found in store.list_objects("") if found.size_bytes < 1 << 20]
    assert len(texts) > 10
    assert not any(SECRET.encode() in text for text in texts)


def test_own_certificates(topic: Path, s3_tls_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_CA_BUNDLE applies to the commits, too."""
    monkeypatch.setenv("SSL_CERT_FILE", "")
    monkeypatch.delenv("SSL_CERT_FILE")
    assert run(topic, f"s3://{s3_tls_server.bucket()}") == 1


def test_a_commit_whose_response_was_lost(
    topic: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client repeats its request, and the store responds that the version exists."""
    uri = f"s3://{s3_server.bucket()}"
    made = LakeTable.commit

    def commit(self: LakeTable, *args: Any) -> None:
        made(self, *args)
        if self.name == COMMITS:
            raise LockedError("another program changed the table at the same time")

    with monkeypatch.context() as patched:
        patched.setattr(LakeTable, "commit", commit)
        assert run(topic, uri) == 1
    assert rows_of(uri) == run_once(topic)
