"""Generate man pages in roff: one for the program, one for each group and command, and those of section 7.

The pages of section 7 come from the Markdown files of `manual/` and from the registries: a line
`<!-- NAME WORDS -->` of such a file stands for a list that `_LISTS` generates.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tierctl import __version__
from tierctl.checks.check import CheckTable
from tierctl.checks.findings import FindingKind
from tierctl.checks.registry import DoctorCheck, RestoreCheck
from tierctl.cli.docs.messages import ERASURE, VERIFY_LIST, Node, Option, command_tree, sections
from tierctl.cli.help import command_lines, questions
from tierctl.commands.completion import FOLDER
from tierctl.errors import ExitCode
from tierctl.model.conflicts import ConflictKind
from tierctl.model.settings import SETTINGS
from tierctl.model.settings.known import ProblemKind
from tierctl.model.settings.scopes import Scope, Setting
from tierctl.report.prometheus import FAMILIES


def page(node: Node) -> str:
    """Return the man page of one command as roff."""
    summary = node.summary[:1].lower() + node.summary[1:]
    lines = [*_head(name(node), 1, summary, "the commands"), *_synopsis(node)]
    lines += [".SH DESCRIPTION", *_paragraphs(node.help.split("\n\n")), *_commands(node), *_options(node)]
    if node.path == ("doctor",):
        lines += [*_checks(DoctorCheck), *_setting_problems(), *_conflicts()]
    if node.path == ("restore", "log"):
        lines += _erasure()
    if node.path == ("restore", "check"):
        lines += _checks(RestoreCheck)
    lines += [*_messages(node), *_examples(node), *_settings(), *_exit_status(), *_see_also(node)]
    return "\n".join(lines) + "\n"


def name(node: Node) -> str:
    """Return the name of a man page without its section, as tierctl-cache-show."""
    return "-".join(("tierctl", *node.path))


def _head(title: str, section: int, summary: str, source: str) -> Iterator[str]:
    yield f".\\\" Written by 'make docs' from {source}; don't edit."
    yield f'.TH "{title.upper()}" {section} "" "tierctl {__version__}" "tierctl manual"'
    yield ".nh"
    yield ".ad l"
    yield ".SH NAME"
    yield f"{escaped(title)} \\- {escaped(summary)}"


def _synopsis(node: Node) -> Iterator[str]:
    yield ".SH SYNOPSIS"
    words = " ".join(("tierctl", *node.path))
    yield f".B {escaped(words)}"
    yield escaped(node.usage)


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    for i, paragraph in enumerate(texts):
        if i:
            yield ".PP"
        yield escaped(" ".join(paragraph.split()))


def _commands(node: Node) -> Iterator[str]:
    if node.children:
        yield ".SH COMMANDS"
    for title, children in node.groups.items():
        if len(node.groups) > 1:
            yield f'.SS "{escaped(title)}"'
        for child in children:
            yield from tagged(f"\\fB{escaped(child.path[-1])}\\fR", f"{escaped(child.summary)}.")


def _options(node: Node) -> Iterator[str]:
    if node.arguments:
        yield ".SH ARGUMENTS"
        for argument in node.arguments:
            yield from tagged(f"\\fI{escaped(argument.metavar)}\\fR", escaped(argument.help))
    for panel in node.panels:
        yield f'.SH "{escaped(panel.upper())}"'
        for option in node.options:
            if option.panel == panel:
                yield from tagged(_names(option), escaped(option.explained))


def _names(option: Option) -> str:
    names = ", ".join(f"\\fB{escaped(each)}\\fR" for each in option.names)
    return names if option.is_flag else f"{names} \\fI{escaped(option.metavar)}\\fR"


def _setting_problems() -> Iterator[str]:
    """Yield the section that lists every kind of problem in files of settings."""
    yield '.SH "PROBLEMS OF SETTINGS"'
    for kind in ProblemKind:
        row = kind.row
        yield from tagged(f"\\fB{escaped(kind)}\\fR \\fI{escaped(row.severity)}\\fR", escaped(row.meaning))


def _checks(registry: type[CheckTable]) -> Iterator[str]:
    """Yield the section that lists every check of a registry of `checks.registry`."""
    yield ".SH CHECKS"
    for check in registry:
        row = check.row
        fix = "" if row.fix.startswith("see ") else f" Fix: {row.fix}."
        text = f"{row.why}{fix} Needs {row.needs}."
        yield from tagged(f"\\fB{escaped(check)}\\fR \\fI{escaped(row.severity)}\\fR", escaped(text))


def _erasure() -> Iterator[str]:
    """Yield the section about `restore log --without-keys`."""
    yield ".SH ERASURE"
    yield from _paragraphs(ERASURE)
    yield ".PP"
    for line in VERIFY_LIST:
        yield ".nf"
        yield escaped(line)
        yield ".fi"


def _conflicts() -> Iterator[str]:
    """Yield the section that lists every kind of conflict between settings, from `model.conflicts`."""
    yield ".SH CONFLICTS"
    for kind in ConflictKind:
        row = kind.row
        refused = " Kafka refuses it." if row.is_refused and "refuse" not in row.meaning else ""
        text = f"{row.meaning}{refused} Fix: {row.fix}."
        yield from tagged(f"\\fB{escaped(kind)}\\fR \\fI{escaped(row.severity)}\\fR", escaped(text))


def _messages(node: Node) -> Iterator[str]:
    """Yield a section for each topic of `sections` that the command has errors about."""
    for section in sections(node):
        yield f".SH {section.title}"
        yield escaped(" ".join(section.introduction.split()))
        for row in section.messages:
            yield from tagged(
                f"\\fB{int(row.code)}\\fR {escaped(row.text)}", escaped(" ".join(row.meaning.split()))
            )


def _examples(node: Node) -> Iterator[str]:
    if node.examples:
        yield ".SH QUESTIONS" if node.children else ".SH EXAMPLES"
    for example in node.examples:
        title = example.text if example.text.endswith("?") else f"{example.text}:"
        yield from tagged(escaped(title), escaped(example.command))


def _settings() -> Iterator[str]:
    yield ".SH ENVIRONMENT"
    yield escaped(
        "Options can be set as TIERCTL_ and their name in capitals: --log-dir is TIERCTL_LOG_DIR. Several "
        "values are separated by blanks, paths by colons. The command line wins. --apply and other options "
        "that decide what is deleted come from the command line only; tierctl-settings(7) lists them."
    )
    yield ".SH FILES"
    yield from tagged(
        escaped("./tierctl.toml, ~/.config/tierctl/tierctl.toml"),
        escaped(
            "Profiles, each a table of options: [profiles.NAME]. The environment wins. A file that "
            "others may write is not used."
        ),
    )
    yield from tagged(
        escaped(f"~/.cache/{FOLDER}/PROFILE"),
        escaped(
            "Names of the topics that the last run with this profile read, from which shells complete "
            "--topic. XDG_CACHE_HOME replaces ~/.cache."
        ),
    )
    yield from tagged(
        escaped("~/.cache/tierctl/kernels-DIGEST"),
        escaped(
            "Compiled loops, if the folder of the installed package can't be written. A folder that others "
            "may write is not used: each long run then compiles the loops again, which takes some seconds."
        ),
    )


def _exit_status() -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for code in ExitCode:
        yield from tagged(f"\\fB{int(code)}\\fR", f"{escaped(code.meaning)}.")
    yield from tagged("\\fB128+N\\fR", "ended by signal N; 141: nobody reads stdout any more.")


_ABOUT: Final = {
    "--apply": "safety",
    "--bootstrap-server": "cluster",
    "--remote": "layouts",
    "--state-dir": "state",
    "--engine": "spark",
    "--metrics-file": "metrics",
}
"""The page of section 7 that is about an option."""


def _see_also(node: Node) -> Iterator[str]:
    above = [("tierctl", *node.path[:i]) for i in range(len(node.path))]
    below = [("tierctl", *child.path) for child in node.children]
    commands = [f"\\fB{escaped('-'.join(words))}\\fR(1)" for words in (*above, *below)]
    yield ".SH SEE ALSO"
    yield ", ".join([*commands, *(f"\\fB{escaped(name)}\\fR(7)" for name in _manual(node))])


def _manual(node: Node) -> Sequence[str]:
    """Return the names of the pages of section 7 about a command; all pages for the program."""
    if not node.path:
        return names()
    options = {name for option in node.options for name in option.names}
    found = {f"tierctl-{topic}" for option, topic in _ABOUT.items() if option in options}
    if node.path in {("verify",), ("status",)}:
        found.add("tierctl-findings")
    return sorted(found | {"tierctl-exit-codes"})


def pages(root: Node) -> dict[str, str]:
    """Return every man page by file name."""
    commands = {f"{name(node)}.1": page(node) for node in root.walk()}
    return commands | manual_pages()


# Section 7

SOURCES: Final = Path(__file__).with_name("manual")
_LIST: Final = re.compile(r"^<!-- ([a-z]+)(?: ([a-z ]+))? -->$", re.MULTILINE)
_TITLE: Final = re.compile(r"# (tierctl-[a-z-]+) - (.+)\n")


def manual_pages() -> dict[str, str]:
    """Return every page of section 7 by file name."""
    return {f"tierctl-{path.stem}.7": manual_page(path) for path in sorted(SOURCES.glob("*.md"))}


def names() -> list[str]:
    """Return the names of the pages without their section, sorted."""
    return sorted(f"tierctl-{path.stem}" for path in SOURCES.glob("*.md"))


def manual_page(path: Path) -> str:
    """Return the roff of one page. Raises ValueError if its first line is not its name and a summary."""
    text = path.read_text(encoding="utf-8")
    title = _TITLE.match(text)
    if title is None or title[1] != f"tierctl-{path.stem}":
        raise ValueError(f"{path.name} begins with {text[:60]!r}; expected '# tierctl-{path.stem} - ...'")
    head = _head(title[1], 7, title[2], "the pages in tierctl/cli/docs/manual")
    return "\n".join([*head, *from_markdown(with_lists(text[title.end() :])), *_see_others(title[1])]) + "\n"


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


def _listed_settings(scope: str) -> Iterator[str]:
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


def _typed(_: str) -> Iterator[str]:
    """Yield every option that only the command line gives, with its commands; --help-all decides nothing."""
    found: dict[str, list[str]] = {}
    for node in command_tree().walk():
        for option in node.options if not node.children else ():
            if option.is_typed_only and "--help-all" not in option.names:
                found.setdefault(max(option.names, key=len), []).append(" ".join(node.path))
    for name, commands in sorted(found.items()):
        yield f"- **{_plain(name)}**: {', '.join(commands)}."


def _plain(text: str) -> str:
    """Return `text` with escapes, so that Markdown prints it unchanged."""
    return re.sub(r"([\\`*_<>\[\]])", r"\\\1", text)


def _see_others(own: str) -> Iterator[str]:
    yield ".SH SEE ALSO"
    others = [f"\\fB{escaped(name)}\\fR(7)" for name in names() if name != own]
    yield ", ".join(["\\fBtierctl\\fR(1)", *others])


_LISTS: Final[dict[str, Callable[[str], Iterator[str]]]] = {
    "findings": _findings,
    "settings": _listed_settings,
    "codes": _codes,
    "metrics": _metrics,
    "questions": _questions,
    "typed": _typed,
}
"""The function that generates each list from the words after its name."""


# roff, the language of man pages, from plain text and from Markdown

_WIDTH: Final = 70
"""The longest command line, so that an indented one fits a terminal of 80 columns."""
_TOO_LONG: Final = re.compile(rf"\S{{{_WIDTH + 1},}}")
"""A word for which no line has room, such as the name of a class."""
_FONTS: Final = {"strong_open": "\\fB", "em_open": "\\fI", "strong_close": "\\fR", "em_close": "\\fR"}


def escaped(text: str) -> str:
    """Return `text` with escapes, so that roff prints it unchanged."""
    found = _within(text)
    return f"\\&{found}" if found.startswith((".", "\\(aq")) else found


def _within(text: str) -> str:
    """Return text within a line with its escapes; a word that is too long for a line may break."""
    found = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return _TOO_LONG.sub(lambda word: word[0].replace(".", ".\\:"), found)


def tagged(tag: str, text: str) -> list[str]:
    """Return the lines of a paragraph `text` that hangs below `tag`; both are roff."""
    return [".TP", tag, text]


def from_markdown(text: str) -> Iterator[str]:
    """Yield the roff lines of a page in Markdown: headings of level 2 and 3, paragraphs, lists, code.

    An item of a list that begins with bold text becomes a tag, up to the first colon, with a hanging
    paragraph. Raises ValueError for an element of Markdown that pages do not use.
    """
    # The tokens that close an element are not needed: the next one opens an element of its own.
    tokens = [each for each in MarkdownIt().enable("table").parse(text) if not each.type.endswith("_close")]
    before: Sequence[str] = ()
    for token in tokens:
        match token.type:
            case "inline":
                yield from _inline(token, before)
            case "fence":
                yield from (".PP", ".RS 4", ".nf", *_code(token.content), ".fi", ".RE")
            case "bullet_list_open" | "heading_open" | "paragraph_open" | "list_item_open":
                pass
            case _:
                raise ValueError(f"line {token.map}: {token.type} has no form in man pages")
        before = (*before[-1:], f"{token.type} {token.tag}")


def _inline(token: Token, before: Sequence[str]) -> Iterator[str]:
    """Yield a heading, an item of a list or a paragraph; `before` are the two tokens before its text."""
    if before[-1] == "heading_open h2":
        yield f'.SH "{escaped(token.content.upper())}"'
    elif before[-1] == "heading_open h3":
        yield f'.SS "{escaped(token.content)}"'
    elif before == ("list_item_open li", "paragraph_open p"):
        yield from _item(token)
    else:
        yield from (".PP", _formatted(token))


def _item(token: Token) -> list[str]:
    text = _formatted(token)
    if not text.startswith("\\fB"):
        return [".IP \\(bu 2", text]
    tag, colon, rest = text.partition(": ")
    if not colon:
        raise ValueError(f"line {token.map}: expected a colon after the bold text of an item")
    return tagged(tag, rest)


def _formatted(token: Token) -> str:
    parts = []
    for child in token.children or ():
        match child.type:
            case "text":
                parts.append(_within(child.content))
            case "code_inline":
                parts.append(f"\\fB{escaped(child.content)}\\fR")
            case "softbreak":
                parts.append(" ")
            case kind if kind in _FONTS:
                parts.append(_FONTS[kind])
            case kind:
                raise ValueError(f"line {token.map}: {kind} has no form in man pages")
    text = "".join(parts)
    return f"\\&{text}" if text.startswith((".", "\\(aq")) else text


def _code(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("$ "):
            yield from map(escaped, command_lines(line.removeprefix("$ "), _WIDTH))
        else:
            yield escaped(line) or "\\&"
