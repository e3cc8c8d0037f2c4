"""`sasl.jaas.config`: which login module, with which options.

Source: org.apache.kafka.common.security.JaasConfig, whose tokens are java.io.StreamTokenizer's: words,
comments, and strings in single or double quotes with Java's escapes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tierctl.errors import UsageError

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN = re.compile(
    r"""(?:\s | /\*.*?\*/ | /[^\r\n]*)*
    (?: "(?P<double>(?:\\.|[^"\\\r\n])*)"
      | '(?P<single>(?:\\.|[^'\\\r\n])*)'
      | (?P<word>[A-Za-z0-9_$.\u00a0-\uffff-]+)
      | (?P<sign>[=;])
      | (?P<other>\S) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModule:
    """One entry; `repr` omits `options`, which may contain secrets."""

    name: str
    options: dict[str, str] = field(repr=False)

    @property
    def short_name(self) -> str:
        """Return the class name without its package, such as PlainLoginModule."""
        return self.name.rpartition(".")[2]


def parse_jaas(text: str) -> LoginModule:
    """Return the first login module; raise UsageError, without the text, if JaasConfig would refuse it."""
    tokens = _tokens(text)
    kind, name = next(tokens, ("end", ""))
    if kind != "word":
        raise _refused("it does not begin with a login module's class")
    kind, flag = next(tokens, ("end", ""))
    if flag.lower() not in _FLAGS:
        raise _refused("no control flag (as `required`) follows the login module")
    options: dict[str, str] = {}
    for kind, key in tokens:
        if (kind, key) == ("sign", ";"):
            return LoginModule(name=name, options=options)
        is_option = kind != "sign" and next(tokens, None) == ("sign", "=")
        is_what, value = next(tokens, ("end", "")) if is_option else ("end", "")
        if is_what not in {"word", "text"}:
            raise _refused(f"option {len(options) + 1} has no value")
        options[key] = value
    raise _refused("it does not end with a semicolon")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        if match["other"] is not None:
            raise _refused(f"character {match.start('other') + 1} can't be there")
        if match["word"] is not None:
            yield "word", match["word"]
        elif match["sign"] is not None:
            yield "sign", match["sign"]
        else:
            quoted = match["double"] if match["double"] is not None else match["single"]
            yield "text", _ESCAPE.sub(_unescape, quoted)


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)


def _refused(why: str) -> UsageError:
    return UsageError(
        f"sasl.jaas.config: {why}",
        hint='expected: some.package.LoginModule required username="…" password="…";',
    )
