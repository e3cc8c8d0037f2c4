"""The README and the pages of the manual: their blocks of code, command lines and prose."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from tierctl.cli.docs.man import SOURCES, with_lists

_LINE_CONTINUED = re.compile(r" *\\\n\s*")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line after the prompt, and the lines that are shown as its output."""

    document: str
    line: str
    shown: tuple[str, ...]

    @property
    def asks_cluster(self) -> bool:
        """Return whether the command line needs a broker."""
        return any(word in self.line for word in ("broker1:9092", "restore check", "delete --find"))

    @property
    def runs_spark(self) -> bool:
        """Return whether the command line starts Spark."""
        return "--master local" in self.line

    @property
    def is_stock_consumer(self) -> bool:
        """Return whether the command line runs Kafka's console consumer with tierctl's formatter."""
        return "CLASSPATH" in self.line or self.line.startswith("kafka-console-consumer.sh")

    @property
    def administers_cluster(self) -> bool:
        """Return whether the command line runs a tool of Kafka that changes topics."""
        return self.line.startswith(("kafka-configs.sh", "kafka-topics.sh"))


@dataclass(frozen=True, slots=True)
class Document:
    """A Markdown file, with its generated lists."""

    name: str
    text: str

    @property
    def commands(self) -> list[Command]:
        """Return the command lines in its blocks, in their order.

        Blocks of `console` have prompts and output. Those of `bash` can be pasted; a block of `text` that
        follows one of them is the output of its last command.
        """
        found: list[Command] = []
        before = ""
        for fence in (each for each in MarkdownIt().parse(self.text) if each.type == "fence"):
            match before, fence.info:
                case _, "console":
                    found += self._commands(fence.content)
                case _, "bash":
                    lines = _LINE_CONTINUED.sub(" ", fence.content).splitlines()
                    found += [Command(self.name, line, ()) for line in lines if not line.startswith("# ")]
                case "bash", "text":
                    found[-1] = replace(found[-1], shown=_output(fence.content.splitlines()))
            before = fence.info
        return found

    def blocks(self, language: str) -> list[str]:
        """Return the content of each block of code in `language`."""
        tokens = MarkdownIt().parse(self.text)
        return [each.content for each in tokens if each.type == "fence" and each.info == language]

    @property
    def languages(self) -> list[str]:
        """Return the language of each block of code."""
        tokens = MarkdownIt().parse(self.text)
        return [each.info for each in tokens if each.type in {"fence", "code_block"}]

    def section(self, title: str) -> str:
        """Return the text below the heading `title` of the second level."""
        (found,) = re.findall(
            rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", self.text, re.MULTILINE | re.DOTALL
        )
        return str(found)

    @property
    def spans(self) -> list[str]:
        """Return the text of every code span, also of those in tables."""
        tokens = MarkdownIt().enable("table").parse(self.text)
        children = [child for each in tokens for child in each.children or ()]
        return [child.content for child in children if child.type == "code_inline"]

    @property
    def bold(self) -> list[str]:
        """Return every bold text."""
        tokens = MarkdownIt().enable("table").parse(self.text)
        children = [child for each in tokens for child in each.children or ()]
        pairs = pairwise(children)
        return [text.content for mark, text in pairs if (mark.type, text.type) == ("strong_open", "text")]

    @property
    def prose(self) -> str:
        """Return the text without blocks of code."""
        return re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL)

    def _commands(self, block: str) -> Iterator[Command]:
        for part in re.split(r"^\$ ", _LINE_CONTINUED.sub(" ", block), flags=re.MULTILINE)[1:]:
            line, *shown = part.splitlines()
            yield Command(self.name, line, _output(shown))


def _output(shown: list[str]) -> tuple[str, ...]:
    """Return the lines of output. `...` stands for omitted lines; a comment belongs to the next command."""
    return tuple(each for each in shown if each not in {"", "..."} and not each.startswith("# "))


ROOT = Path(__file__).parents[2]
README = Document("README.md", (ROOT / "README.md").read_text())
CONTRIBUTING = Document("CONTRIBUTING.md", (ROOT / "CONTRIBUTING.md").read_text())
_PAGES = {
    path.stem: Document(path.name, with_lists(path.read_text())) for path in sorted(SOURCES.glob("*.md"))
}
BAD_DAY = _PAGES.pop("recovery")
"""The page whose commands run on a lost cluster (tests/live/test_bad_day.py)."""
DOCUMENTS = (README, *_PAGES.values())
COMMANDS = [command for document in DOCUMENTS for command in document.commands]
