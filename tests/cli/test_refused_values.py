"""Values that every option refuses: URIs with credentials, and settings files of another kind."""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tierctl import commands
from tierctl.cli.app import leaves
from tierctl.errors import UsageError

from tests.cli.shell import tierctl
from tests.support.cluster_metadata import make_log_dir

SECRET = "wJalrXUtnFEMI"
AZURE = "abfs://container@account.dfs.core.windows.net/folder"
URIS = (
    f"s3://AKIAEXAMPLE:{SECRET}@bucket/tier",
    f"s3://AKIAEXAMPLE:{SECRET}/with/slashes@bucket/tier",
    f"s3://{SECRET}@bucket/tier",
    f"kafka://user:{SECRET}@broker:9092",
    f"{AZURE}?sv=2024&sig={SECRET}",
    f"abfs://container:{SECRET}@account/folder",
    f"abfs://:{SECRET}@account.blob.core.windows.net/container/folder",
    f"abfss://:1/{SECRET}@account.dfs.core.windows.net/folder",
    f"s3://bucket/tier?X-Amz-Signature={SECRET}",
    f"https://user:{SECRET}@host/x",
)
PLACES: dict[str, tuple[str, ...]] = {
    "metadata": ("segments", "--metadata", "{uri}"),
    "remote": ("verify", "--metadata", "/m", "--remote", "{uri}"),
    "source tier": ("copy", "--metadata", "/m", "--remote", "/t", "--from-remote", "{uri}"),
    "target metadata": ("copy", "--metadata", "/m", "--remote", "/t", "--to-metadata", "{uri}"),
    "log directory": ("verify", "--metadata", "/m", "--log-dir", "{uri}"),
    "state directory": ("status", "--metadata", "/m", "--state-dir", "{uri}"),
    "servers": ("status", "--bootstrap-server", "{uri}"),
    "warehouse": ("pipeline", "run", "--metadata", "/m", "--warehouse", "{uri}"),
    "config show": ("config", "show", "status", "--metadata", "{uri}"),
    "schedule": ("schedule", "--cron", "--no-check", "status", "--metadata", "{uri}"),
    "submit": ("submit", "--print", "verify", "--metadata", "/m", "--remote", "{uri}"),
    "Spark": ("verify", "--metadata", "/m", "--engine", "spark", "--spark-conf", "spark.x={uri}"),
    "file": ("format", "{uri}"),
    "plan": ("apply", "{uri}"),
    "no command": ("{uri}",),
    "no option": ("verify", "--remot={uri}"),
    "too many": ("verify", "{uri}"),
}


@pytest.mark.parametrize(
    ("place", "uri"), [*((place, URIS[0]) for place in PLACES), *(("remote", uri) for uri in URIS[1:])]
)
def test_credentials_are_refused_and_never_printed(place: str, uri: str, tmp_path: Path) -> None:
    """tests/cli/test_frame.py has those of the environment and a profile, test_config.py those of doctor."""
    log = tmp_path / "t.log"
    for more in (("--output", "json"), ()):
        ran = tierctl(
            *(word.format(uri=uri) for word in PLACES[place]), *more, "--log-file", log, cwd=tmp_path
        )
        assert ran.code == 2
        assert SECRET not in ran.out + ran.err + (log.read_text() if log.exists() else "")


@pytest.mark.parametrize(
    "words", [("sweep", "--metadata", "/m"), ("schedule", "--cron", "--no-check", "sweep")]
)
@pytest.mark.parametrize("joined", [True, False])
def test_a_secret_setting_is_refused_and_never_printed(
    words: tuple[str, ...], joined: bool, tmp_path: Path
) -> None:
    """The words would be in the next command, in the log and in a unit."""
    secret = f"rlmm.config.remote.log.metadata.producer.sasl.jaas.config={SECRET}"
    options = (f"--override={secret}",) if joined else ("--override", secret)
    ran = tierctl(*words, *options, "--log-file", log := tmp_path / "t.log")
    assert (ran.code, "--broker-config" in ran.err) == (2, True)
    assert SECRET not in ran.out + ran.err + (log.read_text() if log.exists() else "")


@pytest.mark.parametrize(("uri", "field"), [(URIS[0], "metadata"), (URIS[4], "remote")])
def test_requests_refuse_credentials(uri: str, field: str, capture: Callable[[str], Path]) -> None:
    places = {"metadata": str(capture("tiered-cluster") / "before"), "remote": "/t"}
    request = commands.SweepRequest(**(places | {field: uri}))
    with pytest.raises(UsageError) as refused:
        commands.sweep(request)
    assert SECRET not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize("uri", ["s3://bucket/folder@2024", "hdfs://nn:8020/a@b", AZURE, "/a@b:c"])
def test_other_uris_are_accepted(uri: str, capture: Callable[[str], Path]) -> None:
    where = ("--metadata", capture("tiered-cluster") / "before", "--remote", uri)
    ran = tierctl("schedule", "--cron", "--no-check", "verify", *where)
    assert (ran.code, uri in ran.out) == (0, True)


FILES = {
    "--broker-config": "process.roles=broker,controller\nnode.id=1\nlog.dirs=d\nssl.truststore.location=/t\n",
    "--command-config": "# of an operator\nbootstrap.servers=b:9092\nsecurity.protocol=SASL_SSL\n",
    "--topic-configs": "orders.retention.ms=5\norders.local.retention.ms=1\n",
    "--topics-file": "version: 1\ntopics:\n  orders:\n    topic_id: 2QZ5FAXaQrqgUzsReWnweA\n"
    "    partitions: 1\n    settings:\n      local.retention.ms: '5'\n",
    "--config-file": '[profiles.default]\nremote = "s3://archive/tier"\nbroker-config = "properties"\n',
}
"""A file for each option."""

LINES = {
    "--broker-config": ("explain", "orders", "0", "--metadata={root}", "--remote={tier}"),
    "--command-config": ("segments", "--metadata={root}"),
    "--topic-configs": ("explain", "orders", "0", "--metadata={root}", "--remote={tier}"),
    "--topics-file": ("restore", "into", "{tmp}", "--log-dir={tmp}", "--remote={tier}"),
    "--config-file": ("segments", "--metadata={root}"),
}
"""A command line that takes each option."""


@pytest.fixture
def words(capture: Callable[[str], Path], tmp_path: Path) -> dict[str, str]:
    for option, text in FILES.items():
        (tmp_path / option).write_text(text)
    root = capture("tiered-cluster")
    return {"root": str(root / "before"), "tier": str(root / "before-remote"), "tmp": str(tmp_path)}


@pytest.mark.parametrize(
    ("option", "other"),
    [*itertools.pairwise([*FILES, "--broker-config"]), *itertools.pairwise([*reversed(FILES)])],
)
def test_a_file_for_another_option_is_refused(option: str, other: str, words: dict[str, str]) -> None:
    file = Path(words["tmp"], other)
    ran = tierctl(*(word.format(**words) for word in LINES[option]), f"{option}={file}")
    assert ran.code == 2
    assert re.search(rf"error: {file}, line \d+: expected .*, found .*: ", ran.err), ran.err
    assert f"hint: give this file with {other}; {option} takes " in ran.err
    if option == "--topic-configs":
        for command in (("doctor",), ("config", "show")):
            ran = tierctl(*command, f"{option}={file}")
            assert (ran.code, f"give this file with {other}" in ran.out + ran.err) == (2, True)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--broker-config", ""),
        ("--broker-config", "log.retention.ms=5\nmy.own.plugin=5\n"),
        ("--broker-config", "node.id=1\nbootstrap.servers=b:9092\norders.retention.ms=5\n"),
        ("--command-config", "request.timeout.ms=5\nssl.truststore.location=/t\n"),
        ("--command-config", "bootstrap.servers=b:9092\nnode.id=1\nprocess.roles=broker\n"),
        ("--topic-configs", "log.retention.ms=5\norders.retention.ms=5\nmetadata.log.segment.bytes=500\n"),
    ],
)
def test_a_file_that_shows_no_kind_or_its_own_is_accepted(
    option: str, text: str, words: dict[str, str]
) -> None:
    file = Path(words["tmp"], "file")
    file.write_text(text)
    assert tierctl("config", "show", f"{option}={file}").code == 0


@pytest.mark.parametrize(
    "line",
    [
        "segments --metadata {root} --state-dir {file}",
        "status --metadata {root} --state-dir {file}/below",
        "sweep --metadata {root} --remote {tier} --state-dir {file}",
        "verify --metadata {root} --remote {file}",
        "pipeline run --metadata {root} --warehouse {file}",
    ],
)
def test_a_file_in_the_place_of_a_folder(line: str, words: dict[str, str]) -> None:
    file = Path(words["tmp"], "--topics-file")
    option = line.split()[-2]
    ran = tierctl(*line.format(**words, file=file).split())
    assert (ran.code, ran.out) == (2, "")
    assert f"error: {option} {file}" in ran.err
    assert f": expected a folder, found the file {file}\nhint: name a folder with {option}" in ran.err


def places() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each option that names files or folders, and each such argument, with one command that has it."""
    seen = set()
    for words, command in leaves():
        for param in command.params:
            is_path = "pathlib.Path" in str(param.type_descriptor.annotation)
            if (is_path or param.metavar in {"URI", "DIR"}) and param.name not in seen:
                seen.add(param.name)
                yield words, max(param.opts, key=len) if param.param_type_name == "option" else ""


def test_an_empty_path_is_not_the_current_folder(tmp_path: Path) -> None:
    """It is what a variable of the shell gives that is not set."""
    found = list(places())
    assert len(found) > 20
    for words, option in found:
        for given in ([f"{option}="], [option, ""]) if option else ([""],):
            ran = tierctl(*words, *given, cwd=tmp_path)
            assert (ran.code, f"error: {option}" in ran.err) == (2, True), (words, option)
            assert "expected a name, found an empty text" in ran.err, (words, option)
    assert [*tmp_path.iterdir()] == []


def test_an_empty_path_in_tierctl_toml(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text('[profiles.default]\nstate-dir = ""\n')
    ran = tierctl("segments", "--metadata", tmp_path, "--config-file", file)
    refused = f"error: {file}, line 2: state-dir: expected a name, found an empty text"
    assert (ran.code, refused in ran.err) == (2, True), ran.err


def test_a_number_above_64_bits_is_a_wrong_value(tmp_path: Path) -> None:
    """--limit of more than sys.maxsize ended with an internal error."""
    found = set()
    for words, command in leaves():
        for param in command.params:
            described = param.type_descriptor
            is_number = described.annotation in {int, list[int]} and param.name != "verbose"
            if is_number and described.parameter_info.parser is None:
                option = max(param.opts, key=len)
                found.add(option)
                ran = tierctl(*words, f"{option}={1 << 63}", cwd=tmp_path)
                assert (ran.code, f"'{option}'" in ran.err, ran.out) == (2, True, ""), (words, ran.err)
    assert {"--limit", "--broker-id", "--metadata-partition", "--offset"} <= found


def test_a_broker_id_has_32_bits(tmp_path: Path) -> None:
    """copy --apply made the metadata folder before each of its events was refused."""
    where = ("--metadata", tmp_path / "m", "--remote", tmp_path / "t", "--log-dir", tmp_path, "--apply")
    ran = tierctl("copy", *where, f"--broker-id={1 << 31}")
    assert (ran.code, "Invalid value for '--broker-id'" in ran.err) == (2, True), ran.err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("{tier}", "is a remote tier"),
        ("{tier}/kafka-tiered-storage", "is a remote tier"),
        ("{aiven}", "is a remote tier"),
        ("{tier}/kafka-tiered-storage/new", "is in a remote tier"),
        ("{aiven}/new/deeper", "is in a remote tier"),
        ("{logs}/new", "a broker's log directory"),
        ("{logs}/orders-0/new", "a broker's log directory"),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        "segments --metadata {root} --state-dir",
        "cache build --metadata {root} --out",
        "pipeline run --metadata {root} --warehouse",
    ],
)
def test_a_tier_or_a_log_directory_is_no_folder_for_files_of_tierctl(
    words: str, folder: str, why: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    """A broker does not load a log directory with a folder that has no partition's name."""
    root, aiven = capture("tiered-cluster"), capture("aiven-plain") / "bucket" / "tier"
    named = Path(folder.format(tier=root / "before-remote", aiven=aiven, logs=tmp_path / "logs"))
    make_log_dir(tmp_path / "logs", 1)
    before = sorted([*root.rglob("*"), *aiven.rglob("*"), *tmp_path.rglob("*")])
    *given, option = words.format(root=root / "before").split()
    ran = tierctl(*given, option, named)
    assert (ran.code, f"{option} {named} is " in ran.err, why in ran.err) == (2, True, True), ran.err
    assert sorted([*root.rglob("*"), *aiven.rglob("*"), *tmp_path.rglob("*")]) == before


FOREIGN = {
    "binary data": b"\0\0\0\0\0\0\x0b\xb8\0\x04\x9e\xc1\0\0\0\2\2",
    "a PEM file": b"-----BEGIN PRIVATE KEY-----\nMIICdwIBADANBgkqhkiG9w0BAQEFAASC\n",
    "JSON": b'{"topics": {"orders": {"partitions": 1}}}\n',
    "XML": b"<configuration><property/></configuration>\n",
    "none of the": b"topics:\n  - name: orders\n    config:\n      retention.ms: 5\n",
    "none of the ": b"hello world\nthis is text\n",
}


@pytest.mark.parametrize(
    ("option", "found"),
    [
        *itertools.product(("--broker-config", "--command-config", "--topic-configs"), FOREIGN),
        ("--topics-file", "a PEM file"),
    ],
)
def test_a_file_that_has_no_settings_is_refused(option: str, found: str, words: dict[str, str]) -> None:
    file = Path(words["tmp"], "file")
    file.write_bytes(FOREIGN[found])
    ran = tierctl(*(word.format(**words) for word in LINES[option]), f"{option}={file}")
    assert (ran.code, ran.out) == (2, "")
    assert "MIIC" not in ran.err
    if option == "--topic-configs" and found.startswith("none"):
        assert "unknown topic setting" in ran.err
        return
    assert f"error: {file}: expected " in ran.err
    assert f", found {found}" in ran.err
    assert f"hint: name another file with {option}\n" in ran.err
