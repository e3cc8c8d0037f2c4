"""`copy` copies only topics whose settings have remote.storage.enable=true."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apply.conftest import Ran
from tests.apply.worlds import World

Copy = Callable[..., Ran]
TOPICS = {"bills", "events", "ledger"}
MISSING = "remote.storage.enable=true is not among the topic's settings: tiering is opt-in"


@pytest.fixture
def copy(tierctl: Callable[..., Ran], capture: Callable[[str], Path], tmp_path: Path) -> Callable[..., Ran]:
    """Return a function that copies a log directory; `settings` are lines of --topic-configs, or None."""

    def run(settings: str | None, *more: object, broker: str = "") -> Ran:
        where = ("--metadata", tmp_path / "metadata", "--remote", tmp_path / "tier")
        options: list[object] = ["--log-dir", capture("untiered-broker") / "local", "-o", "json", *more]
        for option, text in (("--topic-configs", settings), ("--broker-config", broker or None)):
            if text is not None:
                file = tmp_path / f"{option.strip('-')}.properties"
                file.write_text(text)
                options += [option, file]
        return tierctl("copy", *where, *options, "--apply")

    return run


def copied(ran: Ran) -> set[str]:
    done: list[dict[str, Any]] = ran.json["outcomes"]
    assert {outcome["status"] for outcome in done} <= {"done"}
    return {outcome["topic"] for outcome in done}


def on(*topics: str) -> str:
    return "".join(f"{topic}.remote.storage.enable=true\n" for topic in topics)


COMPACT = "log.cleanup.policy=compact\n"
ASSUMED = ("--topic", "bills", "--assume-enabled")


@pytest.mark.parametrize(
    ("settings", "more", "topics", "reported"),
    [
        (
            on("bills"),
            (),
            {"bills"},
            f"skipped 2 partitions of 2 topics (events-0, ledger-0): {MISSING}",
        ),
        (None, ASSUMED, {"bills"}, ""),
        (
            on("bills", "ledger") + "bills.cleanup.policy=compact\n",
            (),
            {"ledger"},
            "cleanup.policy=compact: ",
        ),
    ],
)
def test_what_is_copied(
    copy: Copy, settings: str | None, more: tuple[str, ...], topics: set[str], reported: str
) -> None:
    ran = copy(settings, *more)
    assert (ran.code, copied(ran)) == (0, topics), ran.err
    assert reported in ran.err
    assert ran.err.count(MISSING) <= 1


@pytest.mark.parametrize(
    ("files", "more", "refusal"),
    [
        ((None, ""), (), (2, "no source of topic settings is named")),
        ((None, ""), ("--assume-enabled",), (2, "--assume-enabled needs --topic")),
        ((None, ""), ("--topic", "bilsl", "--assume-enabled"), (10, 'unknown topic "bilsl"')),
        ((on("bilsl", "ledger"), ""), (), (2, 'did you mean "bills"?')),
        (("", ""), (), (4, f"none of the 3 selected topics is copied (bills, events, ledger): {MISSING}")),
        ((on("payments"), ""), (), (2, "states settings of payments only")),
        ((None, COMPACT), ASSUMED, (4, "cleanup.policy=compact: Kafka refuses")),
    ],
)
def test_what_is_refused(
    copy: Copy,
    tmp_path: Path,
    files: tuple[str | None, str],
    more: tuple[str, ...],
    refusal: tuple[int, str],
) -> None:
    """Each is refused before an event is published."""
    settings, broker = files
    ran = copy(settings, *more, broker=broker)
    assert (ran.code, refusal[1] in ran.err) == (refusal[0], True), ran.err
    assert not (tmp_path / "tier").exists()
    assert not [log for log in tmp_path.glob("metadata/*/*.log") if log.stat().st_size]


def test_a_sweep_with_mistyped_settings_is_refused(tierctl: Callable[..., Ran], tiered: World) -> None:
    settings = tiered.logs / "mistyped"
    for name, hint in (("bilsl", 'did you mean "bills"?'), ("payments", "known topics: bills")):
        settings.write_text(f"{name}.retention.bytes=1\n")
        ran = tierctl("sweep", *tiered.where, "--topic-configs", settings)
        assert (ran.code, ran.out, hint in ran.err) == (2, "", True), ran.err


def test_apply_of_a_plan_of_assumed_topics(
    tierctl: Callable[..., Ran], capture: Callable[[str], Path], tmp_path: Path
) -> None:
    where = ("--metadata", tmp_path / "metadata", "--remote", tmp_path / "tier")
    logs, kept = ("--log-dir", capture("untiered-broker") / "local", "-o", "json"), tmp_path / "plan.json"
    assert tierctl("copy", *where, *logs, *ASSUMED, "--plan-out", kept).code == 0
    ran = tierctl("apply", kept, *where, *logs, "--apply")
    assert ran.code == 0, ran.err
    assert copied(ran) == {"bills"}
