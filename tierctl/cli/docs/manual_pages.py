"""Generate the man pages of section 7 from the Markdown files of `manual/` and from the registries.

A line `<!-- NAME WORDS -->` of such a file stands for a list that `_LISTS` generates.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tierctl import __version__
from tierctl.checks.findings import FindingKind
from tierctl.cli.docs.roff import escaped, from_markdown
from tierctl.cli.docs.tree import command_tree
from tierctl.cli.examples import questions
from tierctl.errors import ExitCode
from tierctl.model.choices import WITHOUT_ENGINE, WORK_ON_EXECUTORS, engines_of
from tierctl.model.settings import SETTINGS
from tierctl.model.settings.scopes import Scope, Setting
from tierctl.report.prometheus import FAMILIES

SOURCES: Final = Path(__file__).with_name("manual")
_LIST: Final = re.compile(r"^<!-- ([a-z]+)(?: ([a-z ]+))? -->$", re.MULTILINE)
_TITLE: Final = re.compile(r"# (tierctl-[a-z-]+) - (.+)\n")


def manual_pages() -> dict[str, str]:
    """Return every page of section 7 by file name."""
    return {f"tierctl-{path.stem}.7": page(path) for path in sorted(SOURCES.glob("*.md"))}


def names() -> list[str]:
    """Return the names of the pages without their section, sorted."""
    return sorted(f"tierctl-{path.stem}" for path in SOURCES.glob("*.md"))


def page(path: Path) -> str:
    """Return the roff of one page. Raises ValueError if its first line is not its name and a summary."""
    text = path.read_text(encoding="utf-8")
    title = _TITLE.match(text)
    if title is None or title[1] != f"tierctl-{path.stem}":
        raise ValueError(f"{path.name} begins with {text[:60]!r}; expected '# tierctl-{path.stem} - ...'")
    head = [
        ".\\\" Written by 'make docs' from the pages in tierctl/cli/docs/manual; don't edit.",
        f'.TH "{title[1].upper()}" 7 "" "tierctl {__version__}" "tierctl manual"',
        ".nh",
        ".ad l",
        ".SH NAME",
        f"{escaped(title[1])} \\- {escaped(title[2])}",
    ]
    return "\n".join([*head, *from_markdown(with_lists(text[title.end() :])), *_see_also(title[1])]) + "\n"


def with_lists(text: str) -> str:
    """Return the Markdown `text` with each placeholder line replaced by its generated list."""
    return _LIST.sub(lambda found: "\n".join(_LISTS[found[1]](found[2] or "")), text)


def _findings(_: str) -> Iterator[str]:
    """Yield every kind of finding, from the table in `checks.findings`."""
    for kind in FindingKind:
        row = kind.row
        command = f" Planned by `tierctl {row.command}`." if row.command else ""
        repair = f" *Repair*: `verify --plan-out` {_plain(row.repair)}." if row.repair else ""
        fix = f"{row.fix[:1].upper()}{row.fix[1:]}."
        yield f"- **{_plain(kind)}** *{row.severity}*: {_plain(f'{row.why} {fix}')}{command}{repair}"


def _settings(scope: str) -> Iterator[str]:
    """Yield every setting of one scope, from the registry in `model.settings`."""
    for setting in SETTINGS:
        if setting.scope is Scope(scope):
            treatment = f"{setting.treatment[:1].upper()}{setting.treatment[1:]}."
            yield f"- **{_plain(setting.name)}** *{_kind(setting)}*: {_plain(treatment)}"


def _kind(setting: Setting[object]) -> str:
    """Return the valid values of a setting, Kafka's default, what tierctl assumes, and the releases."""
    facts = [setting.values]
    if setting.default is not None:
        facts.append(f"default {_shown(setting.default)}")
    if setting.assumed is not None:
        facts.append(f"tierctl assumes {_shown(setting.assumed)}")
    if setting.since != "0":
        facts.append(f"since Kafka {setting.since}")
    if setting.until is not None:
        facts.append(f"until Kafka {setting.until}")
    return _plain("; ".join(facts))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _codes(_: str) -> Iterator[str]:
    """Yield every exit code with its meaning."""
    for code in ExitCode:
        yield f"- **{int(code)}**: {_plain(code.meaning)}."
    yield "- **128+N**: ended by signal N."


def _metrics(_: str) -> Iterator[str]:
    """Yield every metric, from the table in `report.prometheus`."""
    for family in FAMILIES.values():
        labels = f" by {', '.join(family.labels)}" if family.labels else ""
        yield f"- **{_plain(family.name)}** *{family.kind}{labels}*: {_plain(family.help)}."


def _questions(_: str) -> Iterator[str]:
    """Yield every question of operators with the command that answers it, from questions.toml."""
    for each in questions("first", "more"):
        yield f"- **{_plain(each.text)}**: `{each.command}`"


def _engines(_: str) -> Iterator[str]:
    """Yield every command with its engines, from the table in `model.engine`."""
    for command, work in WORK_ON_EXECUTORS.items():
        text = f"{WITHOUT_ENGINE[command]}." if work is None else f"executors {work}."
        yield f"- **{command}** *{', '.join(engines_of(command))}*: {_plain(text)}"


def _typed(_: str) -> Iterator[str]:
    """Yield every option that only the command line gives, with its commands."""
    found: dict[str, list[str]] = {}
    for node in command_tree().walk():
        for option in node.options if not node.children else ():
            if option.is_typed_only:
                found.setdefault(max(option.names, key=len), []).append(" ".join(node.path))
    for name, commands in sorted(found.items()):
        yield f"- **{_plain(name)}**: {', '.join(commands)}."


def _plain(text: str) -> str:
    """Return `text` with escapes, so that Markdown prints it unchanged."""
    return re.sub(r"([\\`*_<>\[\]])", r"\\\1", text)


def _see_also(own: str) -> Iterator[str]:
    yield ".SH SEE ALSO"
    others = [f"\\fB{escaped(name)}\\fR(7)" for name in names() if name != own]
    yield ", ".join(["\\fBtierctl\\fR(1)", *others])


_LISTS: Final[dict[str, Callable[[str], Iterator[str]]]] = {
    "findings": _findings,
    "settings": _settings,
    "codes": _codes,
    "metrics": _metrics,
    "engines": _engines,
    "questions": _questions,
    "typed": _typed,
}
"""The function that generates each list from the words after its name."""
