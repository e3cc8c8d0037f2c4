"""Write completions/, the pages of man/, and the JSON schemas of all output of --output json.

`python -m tierctl.cli.docs.write [DIR]`; DIR is the project.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tierctl.cli.app import leaves
from tierctl.cli.docs import man as docs_man
from tierctl.cli.docs.messages import command_tree
from tierctl.model import IndexType
from tierctl.plan.saved import PLAN_VERSION
from tierctl.read.record_rows import INDEXES
from tierctl.report.columns import Column, Columns, Kind
from tierctl.report.plans import OUTCOMES, STEPS

Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_NUMBER: Schema = {"type": "integer"}
_ITEMS: dict[Kind, Schema] = {
    Kind.PAIRS: {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2},
    Kind.LIST: {"type": "object"},
}


def schemas() -> dict[str, Schema]:
    """Return every schema by the name of its file."""
    made = [*map(_of_rows, kinds_of_rows()), _plan(), _follower_state(), _error(), _message()]
    return {f"{each['$id'].split(':')[1]}.schema.json": each for each in made}


def kinds_of_rows() -> Iterable[Columns]:
    """Return every kind of rows that a command prints."""
    kinds = (kind for _, command in leaves() for kind in getattr(command.callback, "rows", ()))
    return {kind.name: kind for kind in kinds}.values()


def _head(name: str, title: str, description: str, version: int = 1) -> Schema:
    return {
        "$schema": _DRAFT,
        "$id": f"tierctl:{name}:{version}",
        "title": title,
        "description": description,
        "format_version": version,
    }


def _of_rows(columns: Columns) -> Schema:
    """Return the schema of one row: an element of the array of json, and a line of jsonl."""
    description = (
        f"Printed by: {columns.commands}. --output json prints an array of these objects, --output jsonl one "
        "per line. With --columns, an object has only those keys."
    )
    return _head(columns.name, columns.title, description, columns.format_version) | _row(columns)


def _row(columns: Columns) -> Schema:
    return _object(
        {column.name: _value(column) for column in columns.all},
        optional={column.name for column in columns.all if column.is_optional},
        is_open=columns.is_open,
    )


def _object(
    properties: dict[str, Schema], *, optional: set[str] | None = None, is_open: bool = False
) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in (optional or ())],
        "additionalProperties": is_open,
    }


def _value(column: Column) -> Schema:
    json_type: Any = column.kind.json_type
    if column.is_nullable:
        json_type = [json_type, "null"]
    schema: Schema = {"type": json_type, "description": column.meaning}
    if column.kind in _ITEMS:
        schema["items"] = _ITEMS[column.kind]
    return schema


def _map_of(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _plan() -> Schema:
    """Return the schema of a plan: of --plan-out, and of the commands with --output json."""
    place = {
        "metadata": _TEXT,
        "cluster_id": _TEXT_OR_NULL,
        "metadata_topic_id": _TEXT_OR_NULL,
        "tier": _TEXT_OR_NULL,
        "layout": _TEXT_OR_NULL,
    }
    source: Schema = _object(place)
    identity = _object(
        {
            "plan_version": {"const": PLAN_VERSION},
            "tierctl_version": _TEXT,
            "created_ms": _NUMBER,
            "now_ms": _NUMBER,
            **place,
            "source": {"anyOf": [{"type": "null"}, source]},
            "topic_ids": _map_of(_TEXT),
        }
    )
    skipped = {"reason": _TEXT, "topic": _TEXT, "topic_id": _TEXT, "partition": _NUMBER}
    properties: dict[str, Schema] = {
        "command": {
            "enum": [
                *("copy", "delete", "rebuild", "sweep", "verify"),
                *("restore into", "restore log", "restore new-ids"),
            ]
        },
        "steps": {"type": "array", "items": _row(STEPS)},
        "skipped": {"type": "array", "items": _object(skipped | {"segment_id": _TEXT_OR_NULL})},
        "read": _map_of(_NUMBER),
        "identity": identity,
        "options": {"type": "object"},
        "settings": _map_of({"type": "object"}),
        "log_starts": _map_of(_NUMBER),
        "hosts": _hosts(),
        "digest": _TEXT,
        "outcomes": {"type": "array", "items": _row(OUTCOMES)},
        "conclusion": _TEXT,
    }
    description = (
        "Printed by: copy, sweep, delete, rebuild, restore into, new-ids and log, and apply with --output "
        "json; written by --plan-out. With --apply it has outcomes, and a conclusion if the operator must do "
        "something first. "
        "`read` has the next offset of each metadata partition. `hosts` is what each of several hosts writes "
        "into its metadata partitions: a rebuild for brokers whose log directories are on different hosts."
    )
    return _head("plan", "Plan", description, PLAN_VERSION) | _object(
        properties, optional={"hosts", "outcomes", "conclusion"}
    )


def _hosts() -> Schema:
    """Return the schema of `HostsPlan`."""
    entries: Schema = {"type": "array", "items": _ITEMS[Kind.PAIRS]}
    base = dict.fromkeys(("begin_offset", "end_offset", "size_bytes"), _NUMBER)
    next_offset = {"type": ["integer", "null"]}
    return _object(
        {
            "brokers": {"type": "array", "items": _NUMBER},
            **dict.fromkeys(("made_by", "timestamp_ms", "event_broker_id"), _NUMBER),
            "has_txn_index_empty": {"type": "boolean"},
            "bases": {
                "type": "array",
                "items": _object({**base, "sha256": _TEXT, "leader_epochs": entries}),
            },
            "logs": _map_of(
                _object({"start_offset": _NUMBER, "next_offset": next_offset, "lineage": entries})
            ),
            "sha256": _TEXT,
        }
    )


def _follower_state() -> Schema:
    properties: dict[str, Schema] = {
        **dict.fromkeys(("topic", "topic_id"), _TEXT),
        "partition": _NUMBER,
        "segment_id": _TEXT,
        **dict.fromkeys(("epoch", "next_offset"), _NUMBER),
        "leader_epochs": {"type": "array", "items": _ITEMS[Kind.PAIRS]},
        "producers": {"type": "array", "items": _row(INDEXES[IndexType.PRODUCER_SNAPSHOT])},
    }
    description = "Printed by: fetch --auxiliary-state."
    return _head("follower-state", "State that a follower takes from the tier", description) | _object(
        properties
    )


def _error() -> Schema:
    """Return the schema of an error on stderr."""
    error = _object(
        {
            "code": {"type": "integer", "description": "exit code of the error"},
            "kind": {"type": "string", "description": "name of the class of the error"},
            "message": {"type": "string", "description": "what happened"},
            "hint": {"type": ["string", "null"], "description": "what to do"},
            "where": {"type": ["string", "null"], "description": "file, partition or object with the error"},
        }
    )
    description = "Printed on stderr, one per line, by every command with --output json."
    return _head("error", "Error", description) | _object({"error": error})


def _message() -> Schema:
    """Return the schema of messages on stderr other than errors."""
    text = _object({"message": {"type": "string", "description": "the text of the message"}})
    summary = _object(
        {
            "command": {"type": "string", "description": "the command that ended"},
            "message": {"type": "string", "description": "what was done"},
            "seconds": {"type": "number", "description": "duration of the run"},
            "next": {"type": ["string", "null"], "description": "the command that can be run next"},
        }
    )
    kinds = dict.fromkeys(("note", "message", "detail", "warning"), text) | {"summary": summary}
    description = (
        "Printed on stderr, one per line, by every command with --output json; the summary ends a run, and "
        "details come with -v."
    )
    return (
        _head("message", "Message", description)
        | _object(kinds, optional={*kinds})
        | {"minProperties": 1, "maxProperties": 1}
    )


SCHEMA_FILES = Path("tierctl", "report", "schema_files")
_SHELLS: Final = {"bash": "tierctl.bash", "zsh": "_tierctl", "fish": "tierctl.fish"}
"""The shells, with the names of their scripts."""


def files() -> dict[Path, str]:
    """Return the text of every file by its path in the project."""
    completions = {Path("completions", name): _completion(shell) for shell, name in _SHELLS.items()}
    pages = {Path("man", name): text for name, text in docs_man.pages(command_tree()).items()}
    described = {
        SCHEMA_FILES / name: json.dumps(schema, indent=2) + "\n" for name, schema in schemas().items()
    }
    return completions | pages | described


def _completion(shell: str) -> str:
    """Return the completion script that Typer generates for a shell."""
    command = [sys.executable, "-P", "-m", "tierctl"]
    environ = os.environ | {"_TIERCTL_COMPLETE": f"source_{shell}"}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout


def write(folder: Path) -> None:
    """Write every file below `folder`, and delete man pages and schemas that no longer exist."""
    wanted = files()
    for parent in {path.parent for path in wanted}:
        (folder / parent).mkdir(parents=True, exist_ok=True)
    for room in (Path("man"), SCHEMA_FILES):
        for old in (folder / room).iterdir():
            if room / old.name not in wanted and old.suffix != ".svg":
                old.unlink()
    for path, text in wanted.items():
        (folder / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
