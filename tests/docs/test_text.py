"""Names and figures in the README and in the manual are real, and their errors are those of the code.

The README's picture is legible in a browser, and names the real flow and all commands.
"""

import json
import re
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
import tierctl
from tierctl.cli.app import COMMANDS, leaves
from tierctl.cli.docs.man import names
from tierctl.cli.docs.messages import Message, Node, command_tree, sections
from tierctl.cli.profiles import option_key
from tierctl.metadata import state_dir
from tierctl.plan.preconditions import FRACTION_EXEMPT_BELOW
from tierctl.report.formatters.records import Records
from tierctl.storage.index_cache import FOLDER
from tierctl.wire.files.checkpoints import LOG_STARTS_FILE

from tests.bench import figures
from tests.cli.test_docs import generated
from tests.docs.documents import CONTRIBUTING, DOCUMENTS, README, Document
from tests.docs.lines import in_spans, texts_of_code
from tests.wire.metadata.samples import golden

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_UNITS = r"[µmn]?s|seconds|[KMG]B|[MG]iB/s|times as|records/s|segments a second"
_FIGURE = re.compile(rf"(?<![\w.-])(?<!--sample )(?<!such as )\d[\d.,]*(?:×|%| (?:{_UNITS})\b)")
"""A number that states a speed, a duration, a size or a ratio, in units of the benchmark.

Limits and values of options have other units: 10 MiB, 24 hours, 90s; `--sample` has a percentage.
"""
OPTIONS_OF_CONSUMER = {"--formatter", "--formatter-property"}
_PAGE = re.compile(r"\b(tierctl-[a-z-]+)\((\d)\)")


@cache
def measured() -> str:
    """Return the figures that `make bench` wrote."""
    found = json.loads(figures.BENCH_JSON.read_text())
    return figures.readme_section(found) + figures.page(found, "")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_figures_are_those_of_the_benchmark(document: Document) -> None:
    before, _, rest = document.prose.partition(figures.BEGIN)
    stated = set(_FIGURE.findall(before + rest.partition(figures.END)[2]))
    assert stated - set(_FIGURE.findall(measured())) == set()


def options_of(node: Node) -> set[str]:
    """Return the options of a command, or of all commands below a group."""
    return {name for each in node.walk() for option in each.options for name in option.names}


@pytest.mark.parametrize("document", [*DOCUMENTS, CONTRIBUTING], ids=lambda document: document.name)
def test_options_in_the_text_exist(document: Document) -> None:
    """The options of other programs are parts of their command lines, which test_lines.py runs."""
    others = {line for line in in_spans(document) if not line.startswith("tierctl")}
    own = [span for span in document.spans if span not in others]
    named = {word for span in own for word in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span)}
    assert named <= options_of(command_tree()) | {"--help", *OPTIONS_OF_CONSUMER}


@pytest.mark.parametrize("document", [*DOCUMENTS, CONTRIBUTING], ids=lambda document: document.name)
def test_blocks_of_code_have_a_language_that_a_test_runs(document: Document) -> None:
    """Blocks of `text` have formulas and stay without command lines."""
    own = {"bash"} if document is README else {"console"}
    assert set(document.languages) <= {"python", "sh", "sql", "text", "toml", *own}
    assert not [block for block in document.blocks("text") if "tierctl " in block]
    assert not document.blocks("sh") or document.name == "completion.md"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_pages_that_a_text_names_exist(document: Document) -> None:
    pages = {path.name for path in generated() if path.parent.name == "man"}
    assert {f"{page}.{section}" for page, section in _PAGE.findall(document.text)} <= pages


def test_the_readme_names_every_page_of_the_manual() -> None:
    assert {page for page, _ in _PAGE.findall(README.text)} >= set(names())


def test_the_readme_is_short() -> None:
    lines = README.text.splitlines()
    assert len(lines) <= 300
    assert [line for line in lines if len(line) > 120] == []
    assert "sql" not in README.languages


def test_the_readme_begins_with_the_purpose_three_commands_and_a_picture() -> None:
    first, *_ = README.text.split("\n## ")
    assert "`copy` and `sweep` refuse these topics" in " ".join(first.split())
    assert len(Document("first", first).commands) == 3
    assert re.findall(r"^!\[[^]]+\]\(([^)]+)\)", first, re.MULTILINE) == ["man/tierctl.svg"]
    assert len(first.splitlines()) <= 30


def test_every_section_of_the_readme_names_the_extras_of_its_commands() -> None:
    for section in README.text.split("\n## "):
        lines = [command.line for command in Document("section", section).commands]
        named = set(re.findall(r"\b(?:kafka|s3|spark|pipeline)\b", " ".join(_extras(section))))
        assert {name for line in lines for name in needed(line)} <= named, section.partition("\n")[0]


def _extras(section: str) -> list[str]:
    """Return the texts that name extras."""
    return re.findall(r"\bextras? ([^:;.)]+)", section)


def needed(line: str) -> set[str]:
    """Return the extras that a command line needs."""
    marks = {
        "kafka": ("kafka://", "--bootstrap-server"),
        "s3": ("s3://",),
        "spark": ("--engine spark", "submit", "pipeline run"),
        "pipeline": ("--warehouse",),
    }
    return {extra for extra, words in marks.items() if any(word in line for word in words)}


def test_the_manual_lists_what_is_in_a_state_directory() -> None:
    (page,) = (each.text.replace("\\", "") for each in DOCUMENTS if each.name == "state.md")
    files = {state_dir.MANIFEST, state_dir.LAST_RUNS, state_dir.READ_SEGMENTS, state_dir.ORPHAN_SIGHTINGS}
    files |= {state_dir.CUSTOM_METADATA_BREACHES, LOG_STARTS_FILE, FOLDER, "_tierctl_state-N-OFFSET"}
    assert set(re.findall(r"^- \*\*(.+)\*\*: ", page.partition("\n## Cache")[0], re.MULTILINE)) == files


def test_the_manual_names_the_fields_that_are_called_otherwise_than_their_options() -> None:
    (page,) = (each.text for each in DOCUMENTS if each.name == "python.md")
    stated = dict(re.findall(r"`--([a-z-]+)`\s+is\s+`([a-z_]+)`", page))
    of_command = {"show_all"}
    for words, command in leaves():
        for param in command.params:
            key = option_key(param.opts) if param.param_type_name == "option" else param.name
            is_by_rule = re.fullmatch(rf"{key}(_ms|_s|_bytes|_percent)?", param.name or "")
            if not is_by_rule and param.name not in of_command:
                assert stated.get(key.replace("_", "-")) == param.name, words


def test_the_manual_states_which_partitions_have_no_limit_of_deletes() -> None:
    (page,) = (" ".join(each.text.split()) for each in DOCUMENTS if each.name == "safety.md")
    assert f"`--max-fraction` of a partition with at least {FRACTION_EXEMPT_BELOW} segments, " in page


def test_the_formatter_of_the_manual_prints_records() -> None:
    (example,) = next(each for each in DOCUMENTS if each.name == "formatters.md").blocks("python")
    found: dict[str, Any] = {}
    exec(example, found)
    offsets, values = pa.array([4, 5], pa.int64()), pa.array([golden("kafka")[0], b"\xff"], pa.binary())
    records = Records(
        metadata_partition=7,
        offsets=offsets,
        timestamps_ms=offsets,
        values=values,
        errors={1: "\x1b[2Jdamaged"},
    )
    first, second = found["Shout"]({"sep": "?"}).lines(records)
    assert first.startswith("4? RemoteLogSegmentMetadata(")
    assert second == "5? \\x1b[2Jdamaged"


def documented() -> dict[str, Message]:
    """Return each message of a man page once, by its text."""
    return {
        row.text: row
        for node in command_tree().walk()
        for section in sections(node)
        for row in section.messages
    }


@cache
def joined_texts() -> str:
    return "\n".join(texts_of_code())


def fixed_parts(text: str) -> list[str]:
    """Return the parts of a documented text that are the same in every error."""
    parts = re.split(r"\.\.\.|;|\b(?:expected|found)\b|\b[A-Z][A-Z_]*\b", text)
    stripped = (part.strip(' :"(),') for part in parts)
    return [part for part in stripped if len(part) >= 8]


@pytest.mark.parametrize("text", documented())
def test_a_documented_error_is_in_the_code(text: str) -> None:
    texts = joined_texts()
    parts = fixed_parts(text)
    assert parts, "no part of the text is fixed"
    assert [part for part in parts if part not in texts] == []


PICTURE = Path(__file__).parents[2] / "man" / "tierctl.svg"
TEXTS_AND_BOXES = """() => {
  const box = element => { const b = element.getBBox(); return [b.x, b.y, b.x + b.width, b.y + b.height] };
  const all = [...document.querySelectorAll('text')];
  const rects = [...document.querySelectorAll('rect')].map(box);
  return [all.map(text => [text.textContent, ...box(text)]), rects];
}"""


def test_the_picture_has_every_command_and_the_steps_of_the_flow() -> None:
    root = ET.fromstring(PICTURE.read_text())
    texts: dict[str, list[str]] = {}
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        texts.setdefault(element.get("class") or "", []).append(element.text or "")
    assert sorted(texts["command"]) == sorted(COMMANDS)
    packages = {path.stem for path in Path(tierctl.__file__).parent.rglob("*")}
    assert {"read", "fold", "plan", "apply", "report"} <= packages & set(texts["title"])
    assert set(texts["option"]) <= options_of(command_tree())


def faults(browser: "Browser") -> list[str]:
    """Return the texts that overlap another text, or cross the edge of a box, in a browser."""
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(PICTURE.as_uri())
        texts, boxes = page.evaluate(TEXTS_AND_BOXES)
    found = []
    for (one, *a), (other, *b) in combinations(texts, 2):
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]:
            found.append(f"{one!r} overlaps {other!r}")
    for text, left, top, right, bottom in texts:
        for x, y, to_x, to_y in boxes:
            is_inside = x <= left and right <= to_x and y <= top and bottom <= to_y
            is_outside = right <= x or to_x <= left or bottom <= y or to_y <= top
            if not is_inside and not is_outside:
                found.append(f"{text!r} crosses the edge of a box")
    return found


def test_no_text_of_the_picture_is_hidden(browser: "Browser") -> None:
    assert faults(browser) == []
