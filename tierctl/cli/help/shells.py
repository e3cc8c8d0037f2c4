"""Generate completion scripts that contain all commands and options, so that they start no Python."""

import re
from collections.abc import Iterator

from tierctl.cli.help.node import Node, Option

_WRITTEN = "# Written by 'make docs' from the commands; don't edit."
_NO_PARENTHESES = re.compile(r"[\[\]:()]")


def scripts(root: Node) -> dict[str, str]:
    """Return every completion script by file name."""
    return {"tierctl.bash": _bash(root), "_tierctl": _zsh(root), "tierctl.fish": _fish(root)}


def _lines(*parts: Iterator[str]) -> str:
    return "\n".join(line for part in parts for line in part) + "\n"


def _path(node: Node) -> str:
    return " ".join(node.path)


def _bash(root: Node) -> str:
    return _lines(_bash_head(root), _bash_values(root), _bash_words(root))


def _bash_head(root: Node) -> Iterator[str]:
    below = [node for node in root.walk() if node.path]
    yield _WRITTEN
    yield "_tierctl() {"
    yield '    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path="" words="" i'
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield '        case "$path|${COMP_WORDS[i]}" in'
    patterns = "|".join(f'"{" ".join(node.path[:-1])}|{node.path[-1]}"' for node in below)
    yield f'            {patterns}) path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;'
    yield "        esac"
    yield "    done"


def _bash_values(root: Node) -> Iterator[str]:
    yield '    case "$path|$prev" in'
    for node in root.walk():
        for option in node.options:
            if option.is_flag:
                continue
            patterns = "|".join(f'"{_path(node)}|{name}"' for name in option.names)
            if option.choices:
                words = " ".join(option.choices)
                yield f'        {patterns}) COMPREPLY=($(compgen -W "{words}" -- "$cur")); return ;;'
            elif option.takes_file:
                yield f'        {patterns}) COMPREPLY=($(compgen -f -- "$cur")); return ;;'
            else:
                yield f"        {patterns}) COMPREPLY=(); return ;;"
    yield "    esac"


def _bash_words(root: Node) -> Iterator[str]:
    yield '    case "$path" in'
    for node in root.walk():
        names = [name for option in node.options for name in option.names]
        yield f'        "{_path(node)}") words="{" ".join([*_child_names(node), *names])}" ;;'
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield "}"
    yield "complete -o default -F _tierctl tierctl"


def _child_names(node: Node) -> list[str]:
    return [child.path[-1] for child in node.children]


def _zsh(root: Node) -> str:
    return _lines(
        iter(["#compdef tierctl", _WRITTEN]), *map(_zsh_function, root.walk()), iter(['_tierctl "$@"'])
    )


def _zsh_name(node: Node) -> str:
    return "_".join(("_tierctl", *node.path))


def _zsh_function(node: Node) -> Iterator[str]:
    yield f"{_zsh_name(node)}() {{"
    if node.children:
        yield "    local curcontext=$curcontext state line"
    yield f"    _arguments {'-C ' if node.children else ''}-s \\"
    for option in node.options:
        yield f"        {_zsh_option(option)} \\"
    if not node.children:
        yield f"        {_zsh_arguments(node)}"
        yield "}"
        return
    yield "        '1: :->command' '*:: :->rest'"
    yield "    case $state in"
    described = " ".join(f"'{child.path[-1]}:{_zsh_text(child.summary)}'" for child in node.children)
    yield f"        command) local -a commands=({described}); _describe command commands ;;"
    yield "        rest) case $line[1] in"
    for child in node.children:
        yield f"            {child.path[-1]}) {_zsh_name(child)} ;;"
    yield "        esac ;;"
    yield "    esac"
    yield "}"


def _zsh_text(text: str) -> str:
    return _NO_PARENTHESES.sub(lambda found: f"\\{found.group()}", text).replace("'", "'\\''")


def _zsh_option(option: Option) -> str:
    value = "" if option.is_flag else f":{_zsh_text(option.metavar)}:{_zsh_value(option)}"
    names = f"{{{','.join(option.names)}}}" if len(option.names) > 1 else option.names[0]
    repeat = "'*'" if option.is_repeatable else ""
    return f"{repeat}{names}'[{_zsh_text(option.help)}]{value}'"


def _zsh_value(option: Option) -> str:
    if option.choices:
        return f"({' '.join(option.choices)})"
    return "_files" if option.takes_file else " "


def _zsh_arguments(node: Node) -> str:
    return (
        " ".join(f"'{'*' if each.is_repeatable else ''}:{each.metavar}:_files'" for each in node.arguments)
        or ":"
    )


def _fish(root: Node) -> str:
    return _lines(_fish_head(root), *map(_fish_node, root.walk()))


def _fish_head(root: Node) -> Iterator[str]:
    yield _WRITTEN
    yield "function __tierctl_at"
    yield "    set -l path"
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        switch "$path|$word"'
    patterns = " ".join(f"'{' '.join(n.path[:-1])}|{n.path[-1]}'" for n in root.walk() if n.path)
    yield f"            case {patterns}"
    yield '                set path (string trim "$path $word")'
    yield "        end"
    yield "    end"
    yield '    test "$path" = "$argv"'
    yield "end"


def _fish_node(node: Node) -> Iterator[str]:
    condition = f"complete -c tierctl -n '__tierctl_at {_path(node)}'".replace(
        " '__tierctl_at '", " __tierctl_at"
    )
    for child in node.children:
        yield f"{condition} -f -a {child.path[-1]} -d '{_fish_text(child.summary)}'"
    for option in node.options:
        names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
        yield f"{condition} {names} {_fish_value(option)}-d '{_fish_text(option.help)}'"


def _fish_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _fish_value(option: Option) -> str:
    if option.is_flag:
        return ""
    if option.choices:
        return f"-x -a '{' '.join(option.choices)}' "
    return "-r -F " if option.takes_file else "-x "
