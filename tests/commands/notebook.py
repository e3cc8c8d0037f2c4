"""A notebook as a script: the results of commands as tables of Arrow, in pandas, polars and DuckDB.

The folders of the metadata topic and of the tier are its arguments. Each `# %%` begins a cell.
"""

# %%
import sys
from pathlib import Path

import duckdb
import polars as pl
from tierctl.commands import (
    SegmentsRequest,
    StatusRequest,
    SweepRequest,
    VerifyRequest,
    segments,
    status,
    sweep,
    verify,
)

metadata, remote, topic_configs = sys.argv[1:4]

# %% The segments, by size in polars
listed = segments(SegmentsRequest(metadata=metadata)).to_arrow()
by_topic = pl.from_arrow(listed).group_by("topic").agg(pl.col("segment_size_in_bytes").sum()).sort("topic")
print(by_topic.rows())

# %% The same in pandas
print(listed.to_pandas().groupby("topic")["segment_size_in_bytes"].sum().to_dict())

# %% The same in SQL, and what the command itself sums up
print(
    duckdb.sql(
        "SELECT topic, sum(segment_size_in_bytes)::BIGINT FROM listed GROUP BY topic ORDER BY topic"
    ).fetchall()
)
sizes = segments(SegmentsRequest(metadata=metadata, sizes=True)).to_arrow()
print(
    duckdb.sql(
        "SELECT topic, log_bytes + copying_bytes + deleting_bytes FROM sizes ORDER BY topic"
    ).fetchall()
)

# %% The first leader epoch of each segment
epochs = duckdb.sql(
    "SELECT DISTINCT segment_leader_epochs[1].leader_epoch AS epoch FROM listed ORDER BY epoch"
)
print(epochs.fetchall())

# %% Findings, the status, and what retention would delete
findings = verify(VerifyRequest(metadata=metadata, remote=remote)).to_arrow()
topics = status(StatusRequest(metadata=metadata)).to_arrow()
request = SweepRequest(metadata=metadata, remote=remote, topic_configs=Path(topic_configs))
steps = sweep(request).to_arrow()
print(findings.num_rows, topics["topic"].to_pylist(), steps.column_names[:3])
