"""Generate man pages in roff: one for the program, one for each group and command."""

from collections.abc import Iterable, Iterator, Sequence

from tierctl import __version__
from tierctl.cli.docs.messages import sections
from tierctl.cli.help.node import Node, Option
from tierctl.errors import ExitCode
from tierctl.verify.findings import FindingKind


def page(node: Node) -> str:
    """Return the man page of one command as roff."""
    lines = [*_head(node), *_synopsis(node), *_description(node), *_commands(node), *_options(node)]
    if node.path == ("verify",):
        lines += _findings()
    lines += [*_messages(node), *_examples(node), *_settings(), *_exit_status(), *_see_also(node)]
    return "\n".join(lines) + "\n"


def name(node: Node) -> str:
    """Return the name of a man page without its section, as tierctl-cache-show."""
    return "-".join(("tierctl", *node.path))


def _text(text: str) -> str:
    """Return `text` with escapes, so that roff prints it unchanged."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped


def _head(node: Node) -> Iterator[str]:
    yield ".\\\" Written by 'make docs' from the commands; don't edit."
    yield f'.TH "{name(node).upper()}" 1 "" "tierctl {__version__}" "tierctl manual"'
    yield ".nh"
    yield ".ad l"
    yield ".SH NAME"
    yield f"{_text(name(node))} \\- {_text(node.summary[:1].lower() + node.summary[1:])}"


def _synopsis(node: Node) -> Iterator[str]:
    yield ".SH SYNOPSIS"
    words = " ".join(("tierctl", *node.path))
    yield f".B {_text(words)}"
    yield _text(node.usage)


def _description(node: Node) -> Iterator[str]:
    yield ".SH DESCRIPTION"
    for i, paragraph in enumerate(node.help.split("\n\n")):
        if i:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _commands(node: Node) -> Iterator[str]:
    if node.children:
        yield ".SH COMMANDS"
    for child in node.children:
        yield from _tagged(f"\\fB{_text(child.path[-1])}\\fR", f"{_text(child.summary)}.")


def _tagged(tag: str, text: str) -> list[str]:
    return [".TP", tag, text]


def _options(node: Node) -> Iterator[str]:
    if node.arguments:
        yield ".SH ARGUMENTS"
        for argument in node.arguments:
            yield from _tagged(f"\\fI{_text(argument.metavar)}\\fR", _text(argument.help))
    for panel in node.panels:
        yield f'.SH "{_text(panel.upper())}"'
        for option in node.options:
            if option.panel == panel:
                yield from _tagged(_names(option), _explained(option))


def _names(option: Option) -> str:
    names = ", ".join(f"\\fB{_text(each)}\\fR" for each in option.names)
    return names if option.is_flag else f"{names} \\fI{_text(option.metavar)}\\fR"


def _explained(option: Option) -> str:
    return _text(option.explained)


def _findings() -> Iterator[str]:
    """Yield the section that lists every kind of finding, from the table in `verify.findings`."""
    yield ".SH FINDINGS"
    for kind in FindingKind:
        row = kind.row
        repair = f" Planned by tierctl {row.repair}." if row.repair else ""
        advice = f"{row.advice[:1].upper()}{row.advice[1:]}."
        yield from _tagged(
            f"\\fB{_text(kind)}\\fR \\fI{_text(row.severity)}\\fR", _text(f"{row.meaning} {advice}{repair}")
        )


def _messages(node: Node) -> Iterator[str]:
    """Yield a section for each topic of `sections` that the command has errors about."""
    for section in sections(node):
        yield f".SH {section.title}"
        yield _text(" ".join(section.introduction.split()))
        for row in section.messages:
            yield from _tagged(
                f"\\fB{int(row.code)}\\fR {_text(row.text)}", _text(" ".join(row.meaning.split()))
            )


def _examples(node: Node) -> Iterator[str]:
    if node.examples:
        yield ".SH EXAMPLES"
    for example in node.examples:
        yield from _tagged(_text(f"{example.text}:"), _text(example.command))


def _settings() -> Iterator[str]:
    yield ".SH ENVIRONMENT"
    yield _text(
        "Every option except --apply can be set as TIERCTL_ and its name in capitals: --log-dir is "
        "TIERCTL_LOG_DIR. Several values are separated by blanks, paths by colons. The command line wins."
    )
    yield ".SH FILES"
    yield from _tagged(
        _text("./tierctl.toml, ~/.config/tierctl/tierctl.toml"),
        _text("Profiles, each a table of options: [profiles.NAME]. The environment wins."),
    )


def _exit_status() -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for code in ExitCode:
        yield from _tagged(f"\\fB{int(code)}\\fR", f"{_text(code.meaning)}.")
    yield from _tagged("\\fB128+N\\fR", "ended by signal N.")


def _see_also(node: Node) -> Iterator[str]:
    above = [("tierctl", *node.path[:i]) for i in range(len(node.path))]
    below = [("tierctl", *child.path) for child in node.children]
    yield ".SH SEE ALSO"
    yield _joined(f"\\fB{_text('-'.join(words))}\\fR(1)" for words in (*above, *below))


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(texts)


def pages(root: Node) -> dict[str, str]:
    """Return every man page by file name."""
    nodes: Sequence[Node] = list(root.walk())
    return {f"{name(node)}.1": page(node) for node in nodes}
