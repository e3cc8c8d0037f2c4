"""Generate man pages in roff: one for the program, one for each group and command, and those of section 7."""

from collections.abc import Iterator, Sequence
from typing import Final

from tierctl import __version__
from tierctl.checks.check import CheckTable
from tierctl.checks.registry import DoctorCheck, RestoreCheck
from tierctl.cli.docs.erasure import ERASURE, VERIFY_LIST
from tierctl.cli.docs.manual_pages import manual_pages, names
from tierctl.cli.docs.messages import sections
from tierctl.cli.docs.roff import escaped, tagged
from tierctl.cli.docs.tree import Node, Option
from tierctl.commands.completion import FOLDER
from tierctl.errors import ExitCode
from tierctl.model.conflicts import ConflictKind
from tierctl.model.settings.known import ProblemKind


def page(node: Node) -> str:
    """Return the man page of one command as roff."""
    lines = [*_head(node), *_synopsis(node), *_description(node), *_commands(node), *_options(node)]
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


def _head(node: Node) -> Iterator[str]:
    yield ".\\\" Written by 'make docs' from the commands; don't edit."
    yield f'.TH "{name(node).upper()}" 1 "" "tierctl {__version__}" "tierctl manual"'
    yield ".nh"
    yield ".ad l"
    yield ".SH NAME"
    yield f"{escaped(name(node))} \\- {escaped(node.summary[:1].lower() + node.summary[1:])}"


def _synopsis(node: Node) -> Iterator[str]:
    yield ".SH SYNOPSIS"
    words = " ".join(("tierctl", *node.path))
    yield f".B {escaped(words)}"
    yield escaped(node.usage)


def _description(node: Node) -> Iterator[str]:
    yield ".SH DESCRIPTION"
    for i, paragraph in enumerate(node.help.split("\n\n")):
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
                yield from tagged(_names(option), _explained(option))


def _names(option: Option) -> str:
    names = ", ".join(f"\\fB{escaped(each)}\\fR" for each in option.names)
    return names if option.is_flag else f"{names} \\fI{escaped(option.metavar)}\\fR"


def _explained(option: Option) -> str:
    return escaped(option.explained)


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
    for i, paragraph in enumerate(ERASURE):
        if i:
            yield ".PP"
        yield escaped(" ".join(paragraph.split()))
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
