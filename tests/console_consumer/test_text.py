"""The jar prints the same bytes as `tierctl format`, in the class path of Kafka 3.9 and 4.3."""

import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tierctl.console_consumer import CLASS_NAME
from tierctl.errors import UsageError
from tierctl.report.formatters.records import Records, load

from tests.console_consumer.values import ODD, broken, hostile, tagged, unusual
from tests.support.amounts import TRIES_ALL
from tests.support.kafka import KafkaRelease
from tests.wire.metadata.samples import golden

DRIVER = Path(__file__).parent / "Driver.java"
BROKEN = 6_000 if TRIES_ALL else 2_000
FLAGS = ("print.partition", "print.message.offset", "print.version", "print.all.event.value.fields")
SEPARATORS = ({"sep": " | "}, {"vs": "\t"}, {"sep": "<topic>%s\\", "vs": "é"}, {"sep": ""})

Settings = dict[str, str]


def every_setting() -> list[Settings]:
    """Return all combinations of KIP-405's properties, and the styles without properties.

    Without `TRIES_ALL`, separators are combined with no flag and with all of them only.
    """
    flags = [
        dict(zip(FLAGS, values, strict=True)) for values in itertools.product(("false", "True"), repeat=4)
    ]
    separated = flags if TRIES_ALL else (flags[0], flags[-1])
    kip = [*flags, *(given | separators for given in separated for separators in SEPARATORS)]
    kafka = [{"format": "kafka", "kafka.version": version} for version in ("3.6", "3.9.1", "4.0", "4.4.0")]
    return [{}, {"format": "json"}, {"format": "kafka"}, *kafka, *kip]


def run_driver(kafka: KafkaRelease, jar: Path, folder: Path) -> None:
    command = ["java", "-Xmx384m", "-Dfile.encoding=US-ASCII", "-cp", f"{jar}:{kafka.jars}/*"]
    done = subprocess.run(
        [*command, str(DRIVER), CLASS_NAME, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-3000:]


def write_input(folder: Path, values: Sequence[bytes | None], settings: Sequence[Settings]) -> None:
    lines = (
        f"7 {offset} {1_700_000_000_000 - offset} {'null' if value is None else value.hex()}\n"
        for offset, value in enumerate(values)
    )
    (folder / "records").write_text("".join(lines))
    rows = ("\x1f".join(f"{name}={value}" for name, value in each.items()) for each in settings)
    (folder / "settings").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def records_of(values: Sequence[bytes | None]) -> Records:
    offsets = range(len(values))
    return Records(
        metadata_partition=7,
        offsets=pa.array(offsets, pa.int64()),
        timestamps_ms=pa.array([1_700_000_000_000 - offset for offset in offsets], pa.int64()),
        values=pa.array(values, pa.binary()),
    )


def own_text(values: Records, given: Settings) -> bytes:
    properties = {name: value for name, value in given.items() if name != "format"}
    lines = load(given.get("format", "kip"), properties).lines(values)
    return "".join(f"{line}\n" for line in lines).encode()


def compare(
    values: Sequence[bytes | None], settings: Sequence[Settings], kafka: KafkaRelease, jar: Path, folder: Path
) -> Records:
    """Fail if the jar prints other lines than tierctl with one of the settings; return the records."""
    write_input(folder, values, settings)
    run_driver(kafka, jar, folder)
    records = records_of(values)
    for run, given in enumerate(settings):
        lines = (
            text.split(b"\n") for text in ((folder / f"{run}.out").read_bytes(), own_text(records, given))
        )
        assert [pair for pair in itertools.zip_longest(*lines) if pair[0] != pair[1]][:3] == [], given
    return records


def values() -> list[bytes | None]:
    return [*golden("kafka"), *golden("kip405"), *ODD, *hostile(), *tagged(), *unusual()]


@pytest.mark.kafka
def test_the_text_is_tierctls_for_every_property(kafka: KafkaRelease, jar: Path, tmp_path: Path) -> None:
    compare(values(), every_setting(), kafka, jar, tmp_path)


@pytest.mark.kafka
def test_what_is_broken_has_the_same_line(kafka: KafkaRelease, jar: Path, tmp_path: Path) -> None:
    settings: list[Settings] = [
        {"print.all.event.value.fields": "true"},
        {"format": "json"},
        {"format": "kafka"},
    ]
    records = compare(list(broken(BROKEN)), settings, kafka, jar, tmp_path)
    assert BROKEN // 3 < records.bad_count < BROKEN


@pytest.mark.kafka
def test_what_tierctl_refuses_is_refused(kafka: KafkaRelease, jar: Path, tmp_path: Path) -> None:
    versions = (" 3.9", "3.9 ", "3.09", "03.9", "3.9.1000", "3.5", "3", "")
    refused: list[Settings] = [
        *({"format": "kafka", "kafka.version": version} for version in versions),
        *({"format": "kafka", "sep": ";"}, {"format": "json", "sep": ";"}, {"format": "nope"}),
        *({"nope": "1"}, {"kafka.version": "3.9"}, {"print.partition": "yes"}),
    ]
    write_input(tmp_path, [], refused)
    run_driver(kafka, jar, tmp_path)
    for run, given in enumerate(refused):
        assert (tmp_path / f"{run}.refused").exists(), given
        with pytest.raises(UsageError):
            own_text(records_of([]), given)
