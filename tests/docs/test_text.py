"""Names and figures in the README and in the manual are real."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
import tierctl
from tierctl.cli.docs.manual_pages import names
from tierctl.cli.docs.write import PICTURE, files
from tierctl.cli.help.node import Node, load_commands
from tierctl.cli.main import COMMANDS
from tierctl.report.formatters.records import Records

from tests.bench import report
from tests.docs.documents import DOCUMENTS, README, Document
from tests.wire.metadata.samples import golden

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
_UNITS = r"[µmn]?s|seconds|[KMG]B|[MG]iB/s|times as|records/s|segments a second"
_FIGURE = re.compile(rf"(?<![\w.-])\d[\d.,]*(?:×|%| (?:{_UNITS})\b)")
"""A number that states a speed, a duration, a size or a ratio, in units of the benchmark.

Limits and values of options have other units: 10 MiB, 24 hours, 90s.
"""
_PAGE = re.compile(r"\b(tierctl-[a-z-]+)\((\d)\)")


@cache
def generated() -> dict[Path, str]:
    """Return the files that `make docs` writes."""
    return files()


def manual_of_commands() -> list[Document]:
    """Return the man pages of section 1 as documents; their examples are in examples.toml."""
    pages = {path: text for path, text in generated().items() if path.suffix == ".1"}
    return [Document(path.name, re.sub(r"\\[&efB]|\\\(aq|\\", "", text)) for path, text in pages.items()]


@cache
def measured() -> str:
    """Return every figure that `make bench` wrote into the README's table."""
    return report.readme_section(json.loads(report.BENCH_JSON.read_text()))


@pytest.mark.parametrize("document", [*DOCUMENTS, *manual_of_commands()], ids=lambda document: document.name)
def test_figures_are_those_of_the_benchmark(document: Document) -> None:
    before, _, rest = document.prose.partition(report.BEGIN)
    stated = set(_FIGURE.findall(before + rest.partition(report.END)[2]))
    assert stated - set(_FIGURE.findall(measured())) == set()


def options_of(node: Node) -> set[str]:
    """Return the options of a command, or of all commands below a group."""
    return {name for each in node.walk() for option in each.options for name in option.names}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_commands_in_the_text_exist(document: Document) -> None:
    """Command lines in prose are not run; their commands and options must exist."""
    for span in document.spans:
        program, *words = span.replace("'", "").split() or [""]
        if program == "tierctl" and words:
            node = load_commands()
            while words and (child := node.child(words[0])) is not None:
                node, words = child, words[1:]
            # The words after `--` are options of another command.
            known = options_of(load_commands() if "--" in words else node)
            named = {word for word in words if re.fullmatch(r"--[a-z][a-z-]+", word)}
            assert span.startswith("tierctl COMMAND") or (node.path and named <= known), span
        elif program == "man" and words:
            pages = {path.name for path in generated()} | {path.stem for path in generated()}
            assert words[-1].removeprefix("man/") in pages, span
        elif program == "pip":
            known = set(re.findall(r"^([a-z0-9]+) = \[", PYPROJECT.read_text(), re.MULTILINE))
            assert set(",".join(re.findall(r"\[([a-z0-9,]+)\]", span)).split(",")) <= known | {""}, span


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_pages_that_a_text_names_exist(document: Document) -> None:
    pages = {path.name for path in generated() if path.parent.name == "man"}
    assert {f"{page}.{section}" for page, section in _PAGE.findall(document.text)} <= pages


def test_the_readme_names_every_page_of_the_manual() -> None:
    assert {page for page, _ in _PAGE.findall(README.text)} >= set(names())


def test_the_readme_begins_with_the_purpose_three_commands_and_a_picture() -> None:
    first, second, *_ = README.text.split("\n## ")
    assert len(re.findall(r"^\$ tierctl ", first, re.MULTILINE)) == 3
    assert re.findall(r"^!\[[^]]+\]\(([^)]+)\)", first, re.MULTILINE) == [str(PICTURE)]
    assert len(first.splitlines()) <= 30
    assert second.startswith("Which question, which command\n")


def test_the_picture_has_every_command_and_the_steps_of_the_flow() -> None:
    root = ET.fromstring(generated()[PICTURE])
    texts: dict[str, list[str]] = {}
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        texts.setdefault(element.get("class") or "", []).append(element.text or "")
    assert sorted(texts["command"]) == sorted(COMMANDS)
    packages = {path.name for path in Path(tierctl.__file__).parent.rglob("*") if path.is_dir()}
    assert {"read", "fold", "plan", "apply", "report"} <= packages & set(texts["title"])
    assert set(texts["option"]) <= options_of(load_commands())


def test_the_formatter_of_the_manual_prints_records() -> None:
    (example,) = next(each for each in DOCUMENTS if each.name == "formatters.md").blocks("python")
    found: dict[str, Any] = {}
    exec(example, found)
    offsets, values = pa.array([4, 5], pa.int64()), pa.array([golden("kafka")[0], b"\xff"], pa.binary())
    first, second = found["Shout"]({"sep": "?"}).lines(Records.of(7, offsets, offsets, values))
    assert first.startswith("4? RemoteLogSegmentMetadata(")
    assert second.startswith("5? ")
