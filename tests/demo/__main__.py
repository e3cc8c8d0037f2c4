"""`make demo`: the main commands on a captured broker's log directory.

`python -m tests.demo FOLDER`. Each command is run as it is shown; the demo fails if a command ends with an
unexpected exit code. FOLDER stays, and three commands to try on it are printed at the end. Another run makes
FOLDER again.
"""

import os
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.captures import unpack

WIDTH = 100
PLACES = "--metadata metadata --remote tier"
SETTINGS = "--topic-configs topics.properties"
TOPICS = (
    "bills.remote.storage.enable=true\nledger.remote.storage.enable=true\nbills.retention.bytes=2000000\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command: the text before it, how much of its output is shown, and its exit code."""

    title: str
    text: str
    command: str
    lines: int = 6
    code: int = 0


STEPS = (
    Step(
        title="copy: what would be copied",
        text="broker/ is the log directory of a stopped Kafka 4.3 broker: topics bills, events and ledger, "
        "nothing of them tiered. topics.properties enables tiering of bills and ledger. Without --apply a "
        "command prints its plan and changes nothing. Of ledger "
        "four segments can go; above them a transaction was still open.",
        command=f"tierctl copy {PLACES} --log-dir broker {SETTINGS}",
    ),
    Step(
        title="copy: do it",
        text="With --apply each segment is announced in the metadata log, uploaded with its indexes, read "
        "back and compared, and only then confirmed.",
        command=f"tierctl copy {PLACES} --log-dir broker {SETTINGS} --apply",
    ),
    Step(
        title="copy: again",
        text="A second run finds that everything is there. --detailed-exitcode would say 9 otherwise.",
        command=f"tierctl copy {PLACES} --log-dir broker {SETTINGS} --detailed-exitcode",
    ),
    Step(
        title="segments: what the tier holds",
        text="Sizes count every object: logs, indexes, snapshots. For scripts: --output json, jsonl, csv.",
        command=f"tierctl segments {PLACES} --sizes",
    ),
    Step(
        title="format: the metadata topic as text",
        text="metadata/ holds __remote_log_metadata as a Kafka log. This is what Kafka's own formatter "
        "would print of it; --style kip and --style json are two others.",
        command="tierctl format --metadata metadata --topic ledger --limit 2",
    ),
    Step(
        title="sweep: what retention would delete",
        text="bills may keep 2 MB a partition. Only a contiguous prefix goes, oldest first, and never a "
        "segment of a topic whose settings are unknown.",
        command=f"tierctl sweep {PLACES} --log-dir broker {SETTINGS}",
        lines=8,
    ),
    Step(
        title="sweep: do it",
        text="The log start offset moves first, then each segment is marked, deleted and confirmed.",
        command=f"tierctl sweep {PLACES} --log-dir broker {SETTINGS} --apply",
        lines=8,
    ),
    Step(
        title="delete: a topic that is gone",
        text="Somebody deleted the topic bills, and its segments would stay in the tier for ever. The mark "
        "is on the topic's id: a new topic of the same name is another one. It needs evidence: no log "
        "directory of any replica has the topic.",
        command=f"tierctl delete {PLACES} --log-dir broker --all-log-dirs --topic bills --mark --apply",
    ),
    Step(
        title="delete: what the mark means",
        text="A run takes up every marked partition; killed anywhere, the next one goes on.",
        command=f"tierctl delete {PLACES} --log-dir broker --apply",
        lines=8,
    ),
    Step(
        title="segments: what is left",
        text="Only ledger.",
        command=f"tierctl segments {PLACES} --sizes",
    ),
    Step(
        title="fetch: records from the tier and the log above it",
        text="read_committed leaves out what aborted transactions wrote, by the transaction indexes in the "
        "tier. The values are shown as their SHA-256.",
        command=f"tierctl fetch {PLACES} --log-dir broker --topic ledger --isolation read_committed "
        "--offset 695 --limit 4 --binary sha256 --output csv",
    ),
)

NEXT = (
    "explain ledger 0 --metadata {0}/metadata --log-dir {0}/broker --topic-configs {0}/topics.properties",
    "verify --deep --metadata {0}/metadata --remote {0}/tier --log-dir {0}/broker",
    "report --html {0}/tier.html --metadata {0}/metadata --remote {0}/tier",
)
"""The commands to try next, in which {0} stands for the folder."""


def _make(folder: Path) -> None:
    """Make an empty folder instead of that of an earlier run. Raises FileExistsError if it is another's."""
    if folder.exists():
        if not (folder / "topics.properties").is_file():
            raise FileExistsError(f"{folder} exists, and the demo did not make it")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _unpack(folder: Path) -> None:
    unpack("untiered-broker", folder)
    (folder / "local").rename(folder / "broker")
    (folder / "topics.properties").write_text(TOPICS)


def _show(text: str = "") -> None:
    print(text, flush=True)


def _run(number: int, step: Step, folder: Path) -> bool:
    """Run a step; return whether it ended with the expected exit code."""
    _show(f"\n{number}. {step.title}\n")
    _show(textwrap.fill(step.text, WIDTH, initial_indent="   ", subsequent_indent="   "))
    _show(f"\n   $ {step.command}")
    words = [sys.executable, "-m", *shlex.split(step.command)]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TIERCTL_")}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    for line in [*lines[: step.lines], *done.stderr.splitlines()]:
        _show("   " + (line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."))
    if len(lines) > step.lines:
        _show(f"   ... and {len(lines) - step.lines} more lines")
    if done.returncode != step.code:
        _show(f"\nFAILED: exit code {done.returncode}, expected {step.code}")
    return done.returncode == step.code


def _delete_topic(folder: Path, topic: str) -> None:
    """Delete the folders of a topic, as a broker does when the topic is deleted."""
    for path in (folder / "broker").glob(f"{topic}-*"):
        shutil.rmtree(path)


def _show_next(folder: Path) -> None:
    """Print the commands of `NEXT` so that a shell runs them in any folder."""
    program = shlex.quote(str(Path(sys.executable).with_name("tierctl")))
    for command in NEXT:
        words = command.format(shlex.quote(str(folder))).replace(" --", " \\\n      --")
        _show(f"\n   {program} {words}")


def main(folder: Path) -> int:
    """Run every step in `folder`; return 1 if one of them failed."""
    began = time.monotonic()
    _make(folder)
    _unpack(folder)
    _show(f"tierctl on the files of a real broker, captured and unpacked into {folder}.")
    for number, step in enumerate(STEPS, start=1):
        if step.title.startswith("delete: a topic"):
            _delete_topic(folder, "bills")
        if not _run(number, step, folder):
            return 1
    _show(f"\nThat was everything, in {time.monotonic() - began:.0f} seconds.")
    _show(f"{folder} stays, to play with. Three commands to try next:")
    _show_next(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
