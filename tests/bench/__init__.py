"""Benches: tierctl and a baseline take turns at the same work, as whole processes.

    make bench                          all rows; ends with one table, and writes bench.json
    make bench ROWS=segments,format     the rows whose key begins with one of the words
    python -m tests.bench deletes --rounds 5 --json /tmp/mine.json       leaves the committed bench.json alone

A row is a generator function in a module of `tests/bench/rows/` (every module there is loaded):

    @row("deletes-s3", work="`sweep --apply`, S3", shape="6,000 segments, 30,000 objects",
         required=Required(ratio=0.5, peak_mb=400), rounds=3, limit="events wait for acknowledgements")
    def deletes_s3(folder: Path) -> Iterator[Comparison]:
        with s3_running(folder) as server:                  # set up, once
            yield Comparison(
                Side("tierctl", lambda: run(*tierctl("sweep", ...), env=...), prepare=fill),  # each round
                Side("boto3", lambda: run(*python_with("boto3==1.44.5"), str(SCRIPT)), prepare=fill),
                check=lambda: ...,                          # raises AssertionError if the results differ
            )

- `harness`: `row`, `Comparison`, `Side`, `Required` (`ratio`: least speed relative to the baseline, 1.5 is
  one and a half times as fast; `seconds`, `peak_mb`: at most). The table shows the sentence `limit` while the
  row misses its requirement.
- `process.run(*words, env=, cwd=, stdin=, stdout=, codes=, is_self_timed=)` runs a command and returns
  `Measured(seconds, peak_bytes)`, all its processes together; `tierctl(*words)` is this tree's command line.
  A program whose last line is {"seconds": ...} is timed without its start-up by `is_self_timed`.
- `metadata_log.metadata_log(Shape(segments=, user_partitions=, metadata_partitions=, deleted=, ...))` is a
  metadata log of that shape, made once; `.uri` is for `--metadata`. Copy its folder before a command that
  writes to it.
- `baselines`: `kafka_tool`, `kafka_program` (java/*.java), `python_with`, `go_program` install what they
  need; if they can't, they raise MissingBaselineError, which a row gives as `Comparison(tierctl, error)`.
- `cache.make_once(name, make)` keeps whatever else is made once, outside the repository: in
  $TIERCTL_BENCH_CACHE, or ~/.cache/tierctl-bench.
"""
