"""Sizes in a manifest of Aiven's plugin that contradict each other."""

import json
from pathlib import Path

from tierctl.storage.layouts.aiven.layout import AivenLayout

from tests.cli.shell import tierctl
from tests.hostile.worlds import World, joined, plain_batch


def test_a_file_size_that_contradicts_the_stored_chunks(tmp_path: Path) -> None:
    """Without compression the stored chunks have the log's bytes: the size of the log can't be another."""
    world = World(tmp_path)
    for number, start in enumerate((0, 50)):
        log = joined([plain_batch(start + offset, b"value") for offset in range(50)])
        world.segment(number, log, start_offset=start, end_offset=start + 49, layout=AivenLayout())
    manifest = min(world.remote.rglob("*.rsm-manifest"))
    document = json.loads(manifest.read_text())
    document["chunkIndex"]["originalFileSize"] -= 1
    manifest.write_text(json.dumps(document))
    ran = tierctl(*("rebuild", "--metadata", tmp_path / "new", "--remote", world.remote, "--layout", "aiven"))
    assert (ran.code, f"its manifest has {len(log) - 1} bytes in chunks of" in ran.err) == (7, True), ran.err
    assert "publish_segment" not in ran.out
