"""Run tierctl command lines over the files of a test world."""

from pathlib import Path

from tierctl.model import Uuid

from tests.apply.runs import NOW_MS
from tests.apply.worlds import RETENTION, World
from tests.metadata.topics import state_at
from tests.support.topic_settings import enabled

OTHER_ID = Uuid("2QZ5FAXaQrqgUzsReWnweA")


def copy(world: World, *more: object) -> tuple[object, ...]:
    logs = ("--log-dir", world.logs, *enabled(world.logs))
    return ("copy", *world.where, "--layout", "kafka", *logs, "-o", "json", *more)


def sweep(world: World, *more: object) -> tuple[object, ...]:
    configs = world.logs / "configs"
    options = ("--log-dir", world.logs, "--topic-configs", configs, "--now", NOW_MS, "-o", "json")
    return ("sweep", *world.where, *options, *more)


def delete(world: World, *more: object) -> tuple[object, ...]:
    return ("delete", *world.where, "-o", "json", *more)


def apply(world: World, plan: Path, *more: object) -> tuple[object, ...]:
    """Carry out a plan of copy or sweep, with the options of the command that made it."""
    configs = world.logs / "all.properties"
    configs.write_text(f"{RETENTION}bills.remote.storage.enable=true\n")
    inputs = ("--log-dir", world.logs, "--topic-configs", configs)
    return ("apply", plan, *world.where, "--layout", "kafka", *inputs, "-o", "json", *more)


def files(world: World) -> dict[str, bytes]:
    """Return the content of every file of the metadata and the tier; lock files have no content."""
    found = {}
    for root in (world.metadata, world.remote):
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.stat().st_size:
                found[str(path)] = path.read_bytes()
    return found


def marking(metadata: Path, topic: str) -> tuple[object, ...]:
    """Return the options that mark a topic as deleted without evidence (`--i-know-it-is-deleted`)."""
    known = [part.topic_id_partition for part in state_at(metadata)]
    (topic_id,) = {partition.topic_id for partition in known if partition.topic == topic}
    return ("--mark", "--topic", topic, "--i-know-it-is-deleted", topic_id)
