"""Generate completion scripts that contain all commands and options, so that they start no Python.

Names of topics and profiles come from the files of `stored_names`. Anybody may have created a topic, so the
scripts use only names of `LEGAL` characters, and neither expand nor evaluate them.
"""

import re
from collections.abc import Iterator

from tierctl.cli.help.node import Node, Option
from tierctl.cli.help.stored_names import FIRST, FOLDER, LEGAL, NAMES_MAX

_WRITTEN = "# Written by 'make docs' from the commands; don't edit."
_FILE = f"/{FOLDER}/"
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
    yield from _BASH_STORED.splitlines()
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
            if option.stored:
                empty = "COMPREPLY=(); compopt +o default 2>/dev/null"
                yield f"        {patterns}) {empty}; _tierctl_stored {option.stored}; return ;;"
            elif option.choices:
                words = " ".join(option.choices)
                yield f'        {patterns}) COMPREPLY=($(compgen -W "{words}" -- "$cur")); return ;;'
            elif option.takes_file:
                # The shell's own completion of files, which quotes their names.
                yield f"        {patterns}) COMPREPLY=(); return ;;"
            else:
                yield f"        {patterns}) COMPREPLY=(); compopt +o default 2>/dev/null; return ;;"
    yield "    esac"


def _bash_words(root: Node) -> Iterator[str]:
    yield '    case "$path" in'
    for node in root.walk():
        names = [name for option in node.options for name in option.names]
        yield f'        "{_path(node)}") words="{" ".join([*_child_names(node), *names])}" ;;'
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield '    case "$path" in'
    for node in root.walk():
        for stored in _stored_arguments(node):
            yield f'        "{_path(node)}") _tierctl_stored {stored} ;;'
    yield "    esac"
    yield "}"
    yield "complete -o default -F _tierctl tierctl"


def _stored_arguments(node: Node) -> set[str]:
    return {argument.stored for argument in node.arguments if argument.stored}


_BASH_STORED = f"""\
_tierctl_stored() {{
    local LC_ALL=C name n=0 file=${{XDG_CACHE_HOME:-${{HOME-}}/.cache}}{_FILE}$1
    [[ -f $file && -r $file ]] || return
    while ((n++ < {NAMES_MAX})) && IFS= read -r name; do
        [[ $name == "$cur"* && $name == [{FIRST}]* && $name != *[!{LEGAL}]* ]] && COMPREPLY+=("$name")
    done < "$file"
}}"""


def _child_names(node: Node) -> list[str]:
    return [child.path[-1] for child in node.children]


def _zsh(root: Node) -> str:
    head = ["#compdef tierctl", _WRITTEN, *_ZSH_STORED.splitlines()]
    return _lines(iter(head), *map(_zsh_function, root.walk()), iter(_ZSH_TAIL))


_ZSH_TAIL = (
    "# compinit loads this file as the function; otherwise the user sources it after compinit.",
    "if [[ ${funcstack[1]-} == _tierctl ]]; then",
    '    _tierctl "$@"',
    "else",
    "    compdef _tierctl tierctl",
    "fi",
)


_ZSH_STORED = f"""\
_tierctl_stored() {{
    emulate -L zsh
    setopt extendedglob
    local LC_ALL=C name file=${{XDG_CACHE_HOME:-${{HOME-}}/.cache}}{_FILE}$argv[-1]
    local -i n=0
    local -a names
    [[ -f $file && -r $file ]] || return 1
    while ((n++ < {NAMES_MAX})) && IFS= read -r name; do
        [[ $name == [{FIRST}][{LEGAL}]# ]] && names+=("$name")
    done < "$file"
    compadd "${{(@)argv[1,-2]}}" -a names
}}"""


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
    if option.stored:
        return f"_tierctl_stored {option.stored}"
    if option.choices:
        return f"({' '.join(option.choices)})"
    return "_files" if option.takes_file else " "


def _zsh_arguments(node: Node) -> str:
    return " ".join(map(_zsh_argument, node.arguments)) or ":"


def _zsh_argument(argument: Option) -> str:
    action = _zsh_value(argument) if argument.stored else "_files"
    return f"'{'*' if argument.is_repeatable else ''}:{argument.metavar}:{action}'"


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
    yield from _FISH_STORED.splitlines()


_FISH_STORED = f"""\
function __tierctl_stored
    set -l folder $XDG_CACHE_HOME
    test -n "$folder"; or set folder $HOME/.cache
    set -l file "$folder{_FILE}$argv[1]"
    test -f "$file" -a -r "$file"; or return
    string match -r '^[{FIRST}][{LEGAL}]*$' < "$file"
end"""


def _fish_node(node: Node) -> Iterator[str]:
    condition = f"complete -c tierctl -n '__tierctl_at {_path(node)}'".replace(
        " '__tierctl_at '", " __tierctl_at"
    )
    for child in node.children:
        yield f"{condition} -f -a {child.path[-1]} -d '{_fish_text(child.summary)}'"
    for stored in _stored_arguments(node):
        yield f"{condition} -f -a '(__tierctl_stored {stored})'"
    for option in node.options:
        names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
        yield f"{condition} {names} {_fish_value(option)}-d '{_fish_text(option.help)}'"


def _fish_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _fish_value(option: Option) -> str:
    if option.is_flag:
        return ""
    if option.stored:
        return f"-x -a '(__tierctl_stored {option.stored})' "
    if option.choices:
        return f"-x -a '{' '.join(option.choices)}' "
    return "-r -F " if option.takes_file else "-x "
