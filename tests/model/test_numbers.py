"""Numbers in texts from outside: other digits than ASCII's, and numbers of any length, are named errors."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tierctl.errors import CorruptInputError, TierctlError, UsageError
from tierctl.kafka.client_settings import split_servers
from tierctl.metadata.cache_files import read_cache
from tierctl.metadata.topic.folder import COUNT_FILE, recorded_count
from tierctl.metadata.topic.open_topic import SegmentFile
from tierctl.model.checked_values import NUMBER_MAX, natural_number
from tierctl.model.events import PARTITION_MAX, TopicPartition
from tierctl.model.selection import parse_partition
from tierctl.plan.partition_choice import AskedLogStart
from tierctl.storage.stores import hdfs

from tests.cli.shell import tierctl

WRONG = ("9" * 5_000, "9" * 30, "²", "٣", "1²", "+1", "1_0", " 1", "")
"""Texts that `int` or `isdigit` accepts, or for which `int` fails, and that state no number."""


@given(st.integers(-10, 1 << 70), st.integers(0, NUMBER_MAX), st.integers(0, 30))
@example(NUMBER_MAX, NUMBER_MAX, 5_000)
def test_a_number_is_read_up_to_the_largest(number: int, most: int, zeros: int) -> None:
    text = f"{'0' * zeros}{number}"
    assert natural_number(text, most) == (number if 0 <= number <= most else None)


@given(st.text())
@example(WRONG[0])
@example("²")
def test_every_other_text_is_none(text: str) -> None:
    expected = int(text) if text and set(text) <= set("0123456789") and len(text) < 19 else None
    assert natural_number(text) == expected


PARSERS: dict[str, tuple[Callable[[str], object], type[TierctlError]]] = {
    "--log-start": (AskedLogStart.parse, UsageError),
    "--partition": (parse_partition, UsageError),
    "partition": (lambda text: TopicPartition.parse(f"orders-{text}"), UsageError),
    "server": (lambda text: split_servers(f"host:{text}", "--bootstrap-server"), UsageError),
}


@pytest.mark.parametrize("text", WRONG[:-1])
@pytest.mark.parametrize("name", PARSERS)
def test_what_is_no_number_is_refused(name: str, text: str) -> None:
    parse, error = PARSERS[name]
    with pytest.raises(error):
        parse(text)


@pytest.mark.parametrize("text", [str(PARTITION_MAX + 1), "9" * 5_000])
@pytest.mark.parametrize(
    "words",
    [
        ("explain", "orders", "{text}", "--remote", "/t"),
        ("segments", "--partition", "{text}"),
        ("format", "--offset", "{text}" * 2),
        ("sweep", "--remote", "/t", "--log-start-offset", "orders-0={text}{text}"),
        ("fetch", "--remote={tier}", "--topic=orders", "--partition=0", "--offset={text}{text}"),
    ],
    ids=lambda words: words[0],
)
def test_options_with_too_large_numbers_are_refused(
    words: tuple[str, ...], text: str, capture: Callable[[str], Path]
) -> None:
    root = capture("tiered-cluster")
    command, *options = (word.format(text=text, tier=root / "before-remote") for word in words)
    ran = tierctl(command, "--metadata", root / "before", *options)
    assert (ran.code, ran.out) == (2, ""), ran.err[-500:]


@pytest.mark.parametrize("text", [*(text for text in WRONG if text == text.strip()), "0"])
def test_a_number_of_metadata_partitions_that_is_none_is_corrupt(text: str, tmp_path: Path) -> None:
    (tmp_path / COUNT_FILE).write_text(text)
    with pytest.raises(CorruptInputError, match="expected the number of metadata partitions, found"):
        recorded_count(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("nothing")])
def test_a_record_of_the_number_that_is_no_file_is_not_missing(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / COUNT_FILE)
    with pytest.raises(OSError, match=re.escape(COUNT_FILE)):
        recorded_count(tmp_path)


@pytest.mark.parametrize("text", [text for text in WRONG if 0 < len(text) < 200])
def test_a_name_of_a_file_that_ends_with_another_number_has_none(text: str, tmp_path: Path) -> None:
    folder = tmp_path / f"orders-{text}"
    folder.mkdir()
    (folder / "remote_log_snapshot").touch()
    assert (found := read_cache(folder / "remote_log_snapshot")).partition is None
    assert found.topic is None
    assert SegmentFile(Path(f"/m/__remote_log_metadata-{text}/0.log")).partition == 0
    assert hdfs._number_of(SimpleNamespace(path=f"/tier/lease.{text}")) == 0  # type: ignore[arg-type]
